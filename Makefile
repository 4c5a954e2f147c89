# make help lists the targets. Only `make setup` needs root.
#
#   CC=clang      another compiler          ARCH=native   for this machine only, and no dispatch
#   SANITIZE=1    ASan and UBSan            WERROR=1      warnings are errors
#   V=1           show the commands         CUDA_ARCHS="75 80 90"   the cards nvcc builds for
#   NVCC=         without CUDA, even where nvcc is found
# Objects live in build/, one folder a combination; stageN_*/run is a copy of the last one built.

MAKEFLAGS += --no-builtin-rules
ifeq ($(origin CC),default)
CC := gcc
endif
CXX := $(filter-out ./,$(dir $(CC)))$(subst clang,clang++,$(subst gcc,g++,$(notdir $(CC))))

stage0_dir := stage0_explicit
stage1_dir := stage1_online_softmax
stage2_dir := stage2_tiled_cpu
stage3_dir := stage3_fused_cuda
stage4_dir := stage4_causal_skip
stage5_dir := stage5_async_copy
stage6_dir := stage6_hopper
stage7_dir := stage7_overlap
# Those that are here: a handout (course/README.md) ends at the stage it hands out.
stages      := $(foreach n,0 1 2 3 4 5 6 7,$(if $(wildcard $(stage$n_dir)/attention.*),$n))
cpu_stages  := $(filter 0 1 2,$(stages))
cuda_stages := $(filter 3 4 5 6 7,$(stages))

# Without nvcc, and under sanitizers, the CUDA stages have their emulated build alone.
NVCC := $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ARCHS := 75 80 90
ifneq ($(SANITIZE),)
override NVCC :=
endif

config  := $(notdir $(CC))$(if $(ARCH),-$(ARCH))$(if $(SANITIZE),-sanitize,$(if $(NVCC),-cuda))
B       := build/$(config)
machine := $(shell $(CC) -dumpmachine 2>/dev/null)

# In a handout what a student has not yet written leaves variables over.
HANDOUT  := $(wildcard course/HANDOUT)
quiet    := $(if $(HANDOUT),-Wno-unused-variable -Wno-unused-but-set-variable -Wno-unused-function -Wno-unused-parameter)
CFLAGS   := -std=gnu11 -O3 -g -fopenmp -ffp-contract=off -Wall -Wextra $(if $(WERROR),-Werror) \
            $(if $(ARCH),-march=$(ARCH) -DARCH_FIXED) $(quiet)
CXXFLAGS := -std=c++17 -O2 -g -ffp-contract=off -Wall -Wextra $(if $(WERROR),-Werror) $(if $(ARCH),-march=$(ARCH)) $(quiet)
CPPFLAGS := -Icommon -D_GNU_SOURCE -MMD -MP
LDFLAGS  := -fopenmp
LDLIBS   := -lm -lpthread
ifneq ($(NVCC),)
NVCCFLAGS := -std=c++17 -O3 -lineinfo -Xcompiler -Wall,-Wextra $(addprefix -Xcompiler ,$(quiet)) $(if $(WERROR),-Werror all-warnings)
# The last architecture also as PTX, for cards that come later. Stages 6 and 7 speak of what
# compute capability 9.0 alone has.
cards  := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
          -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
hopper := -gencode arch=compute_90a,code=sm_90a
cards_of = $(if $(filter 6 7,$1),$(hopper),$(cards))
cuda_home := $(realpath $(dir $(NVCC))..)
CPPFLAGS  += -DWITH_CUDA
LDFLAGS   += $(addprefix -L,$(wildcard $(cuda_home)/lib64 $(cuda_home)/lib))
cudart    := -lcudart_static -ldl -lrt
endif
ifneq ($(SANITIZE),)
CFLAGS  += -O2 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
CXXFLAGS += -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
LDFLAGS += -fsanitize=address,undefined
endif

Q    := $(if $(V),,@)
say   = $(if $(V),,@echo "  $1  $@")

PACKAGES     := gcc g++ libc6-dev libcriterion-dev python3
DEV_PACKAGES := clang clang-format clang-tidy libclang-rt-14-dev libomp-dev gnuplot-nox libopenblas-dev

.PHONY: all help setup clean test test-emulator test-gpu sanitize-gpu kernels check format tidy fuzz $(foreach n,$(stages),stage$n test-$n diff-$n)
.SECONDARY:
.DELETE_ON_ERROR:

all: $(foreach n,$(stages),stage$n) ## build every stage

help: ## this list
	@awk -F':.*## ' '/^[a-zA-Z0-9%_-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile $(if $(HANDOUT),| grep -E 'make (all|help|test|check-mine|format|setup|clean) ')
	@echo "  make stageN         build stage N ($(stages)), and the link ./stageN"
	@echo "  make test-N         the tests of stage N"
	@echo "  make diff-N         what stage N changes in the stage before"
	@echo "  change the build: CC=clang ARCH=native SANITIZE=1 WERROR=1 NVCC= CUDA_ARCHS=90"

# The combination built last; copies of run follow it.
$(shell mkdir -p build; test "$$(cat build/config 2>/dev/null)" = '$(config)' || echo '$(config)' > build/config)

# ---- common/ ----------------------------------------------------------------------------------
# The inner loops are compiled once an instruction set; x*y+c may fuse there and nowhere else on the CPU.
kernels := $(B)/matmul_kernel_base.o
ifneq ($(findstring x86_64,$(machine)),)
ifeq ($(ARCH),)
kernels += $(B)/matmul_kernel_avx2.o $(B)/matmul_kernel_avx512.o
endif
endif
$(B)/matmul_kernel_avx2.o:   kernel_flags := -march=x86-64-v3
$(B)/matmul_kernel_avx512.o: kernel_flags := -march=x86-64-v4 -mprefer-vector-width=512
$(kernels): $(B)/matmul_kernel_%.o: common/matmul_kernel.c | $(B)/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -ffp-contract=fast $(kernel_flags) -DKERNEL=matmul_kernel_$* -c $< -o $@

common_sources := $(filter-out common/matmul_kernel.c common/gpu_absent.c,$(wildcard common/*.c))
common := $(common_sources:common/%.c=$(B)/common/%.o) $(kernels)
no_gpu := $(B)/common/gpu_absent.o
gpu    := $(if $(NVCC),$(B)/common/gpu_device.o,$(no_gpu))

$(B)/common/%.o: common/%.c | $(B)/common/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# The emulator runs the source of CUDA kernels without CUDA (docs/emulator.md).
emulator := $(patsubst common/%.cpp,$(B)/common/%.o,$(wildcard common/*.cpp))
$(B)/common/%.o: common/%.cpp | $(B)/common/
	$(call say,CXX)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

$(B)/common/emulator_wgmma.o: CXXFLAGS += -O3 # unrolls the product, which takes a third of the time
$(B)/common/gpu_device.o: common/gpu_device.cu | $(B)/common/
	$(call say,NVCC)
	$(Q)$(NVCC) -Icommon $(NVCCFLAGS) $(cards) -MMD -MP -c $< -o $@

# ---- stages -----------------------------------------------------------------------------------
# Every stage defines attention_forward; renamed, they link together.
define stage_rules
stage$1: $$(stage$1_dir)/run ## build stage $1
	@test "$$$$(readlink stage$1)" = $$(stage$1_dir) || ln -sfn $$(stage$1_dir) stage$1

$$(stage$1_dir)/run: $$(B)/$$(stage$1_dir)/run build/config
	@cp $$< $$@

stage$1_objects := $$(patsubst %.c,$$(B)/%.o,$$(wildcard $$(stage$1_dir)/*.c))
$$(B)/$$(stage$1_dir)/%.o: $$(stage$1_dir)/%.c | $$(B)/$$(stage$1_dir)/
	$$(call say,CC)
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) -Dattention_forward=attention_forward_stage$1 -c $$< -o $$@

endef
$(foreach n,$(stages),$(eval $(call stage_rules,$n)))

# A CUDA stage's kernel in its builds. $1 stage, $2 source, $3 what its symbols end in.
renamed = $(foreach f,forward forward_device keys_end,-Dattention_$f=attention_$f_$1)
define kernel_rules
$(B)/$(stage$1_dir)/$2_emulated.o: $(stage$1_dir)/$2.cu | $(B)/$(stage$1_dir)/
	$$(call say,CXX)
	$$(Q)$$(CXX) $$(CPPFLAGS) $$(CXXFLAGS) $$(call renamed,$3_emulated) -x c++ -c $$< -o $$@
$(B)/$(stage$1_dir)/$2_emulated_traced.o: $(stage$1_dir)/$2.cu | $(B)/$(stage$1_dir)/
	$$(call say,CXX)
	$$(Q)$$(CXX) $$(CPPFLAGS) $$(CXXFLAGS) $$(call renamed,$3_emulated_traced) -DTRACE -x c++ -c $$< -o $$@
$(B)/$(stage$1_dir)/$2.o: $(stage$1_dir)/$2.cu | $(B)/$(stage$1_dir)/
	$$(call say,NVCC)
	$$(Q)$$(NVCC) -Icommon $$(NVCCFLAGS) $$(call cards_of,$1) $$(call renamed,$3) -MMD -MP -Xptxas -v -c $$< -o $$@ 2> $$@.log || { cat $$@.log; exit 1; }
$(B)/$(stage$1_dir)/$2_traced.o: $(stage$1_dir)/$2.cu | $(B)/$(stage$1_dir)/
	$$(call say,NVCC)
	$$(Q)$$(NVCC) -Icommon $$(NVCCFLAGS) $$(call cards_of,$1) $$(call renamed,$3_traced) -DTRACE -MMD -MP -c $$< -o $$@
$(B)/$(stage$1_dir)/$2.ptx: $(stage$1_dir)/$2.cu $(B)/$(stage$1_dir)/$2.o
	$$(call say,PTX)
	$$(Q)$$(NVCC) -Icommon -std=c++17 -O3 -ptx -arch=compute_$$(if $$(filter 6 7,$1),90a,$$(lastword $$(CUDA_ARCHS))) -o $$@ $$<
kernel_$3 := $(addprefix $(B)/$(stage$1_dir)/$2,_emulated.o _emulated_traced.o $(if $(NVCC),.o _traced.o))
endef
$(if $(filter 3,$(stages)),$(eval $(call kernel_rules,3,attention,stage3)))
$(if $(filter 3,$(stages)),$(eval $(call kernel_rules,3,scalar,stage3_scalar)))
$(if $(filter 4,$(stages)),$(eval $(call kernel_rules,4,attention,stage4)))
$(foreach n,$(filter 5 6 7,$(stages)),$(eval $(call kernel_rules,$n,attention,stage$n)))
cuda_kernels := $(kernel_stage3) $(kernel_stage3_scalar) $(foreach n,4 5 6 7,$(kernel_stage$n))

# What each step adds, whatever it does to the indentation.
difference = git --no-pager diff --no-index -w --color=auto $1 $2 || true
diff-0: ; @$(call difference,/dev/null,$(stage0_dir)/attention.c)
diff-1: ; @$(call difference,$(stage0_dir)/attention.c,$(stage1_dir)/attention.c)
diff-2: ; @$(call difference,$(stage1_dir)/attention.c,$(stage2_dir)/attention.c)
diff-3:
	@$(call difference,$(stage2_dir)/attention.c,$(stage3_dir)/scalar.cu)
	@$(call difference,$(stage3_dir)/scalar.cu,$(stage3_dir)/attention.cu)
diff-4: ; @$(call difference,$(stage3_dir)/attention.cu,$(stage4_dir)/attention.cu)
diff-5: ; @$(call difference,$(stage4_dir)/attention.cu,$(stage5_dir)/attention.cu)
diff-6: ; @$(call difference,$(stage5_dir)/attention.cu,$(stage6_dir)/attention.cu)
diff-7: ; @$(call difference,$(stage6_dir)/attention.cu,$(stage7_dir)/attention.cu)

attentions := $(foreach n,$(cpu_stages),$(B)/$(stage$n_dir)/attention.o)
$(foreach n,$(cpu_stages),$(B)/$(stage$n_dir)/run): $(common) $(no_gpu)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) -o $@
# A stage is checked against the one before and timed against stage 0, so it links both.
$(B)/$(stage0_dir)/run: $(stage0_objects)
$(B)/$(stage1_dir)/run: $(stage1_objects) $(B)/$(stage0_dir)/attention.o
$(B)/$(stage2_dir)/run: $(stage2_objects) $(B)/$(stage0_dir)/attention.o $(B)/$(stage1_dir)/attention.o

$(foreach n,$(cuda_stages),$(B)/$(stage$n_dir)/run): $(emulator) $(common) $(gpu) $(attentions)
	$(call say,LD)
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cudart) -o $@
$(B)/$(stage3_dir)/run: $(stage3_objects) $(kernel_stage3) $(kernel_stage3_scalar)
$(B)/$(stage4_dir)/run: $(stage4_objects) $(kernel_stage3) $(kernel_stage4)
$(B)/$(stage5_dir)/run: $(stage5_objects) $(kernel_stage4) $(kernel_stage5)
$(B)/$(stage6_dir)/run: $(stage6_objects) $(kernel_stage5) $(kernel_stage6)
$(B)/$(stage7_dir)/run: $(stage7_objects) $(kernel_stage6) $(kernel_stage7)

# ---- tests ------------------------------------------------------------------------------------
# Tests of the CUDA stages come twice: in the emulator, and, made with nvcc, on a GPU.
# Under sanitizers the samples of the READMEs are left out: the programs are run by the other tests.
test_sources := $(filter-out $(if $(NVCC),,tests/test_gpu.c) $(if $(SANITIZE),tests/test_readme.c),$(wildcard tests/test_*.c))
tests     := $(patsubst tests/%.c,$(B)/tests/%,$(test_sources)) \
             $(patsubst tests/%.cpp,$(B)/tests/%,$(wildcard tests/test_*.cpp))
runs      := $(foreach n,$(stages),$(stage$n_dir)/run)
$(B)/tests/%.o: tests/%.c | $(B)/tests/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) -Ibench $(foreach n,$(stages),-I$(stage$n_dir)) $(CFLAGS) -c $< -o $@
$(B)/tests/test_%: $(B)/tests/test_%.o $(attentions) $(cuda_kernels) $(emulator) $(common) $(gpu)
	$(call say,LD)
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) -lcriterion $(LDLIBS) $(cudart) -o $@
$(B)/tests/test_bench: $(B)/bench/row.o
$(B)/tests/test_walkthrough: $(filter-out %/main.o %/attention.o,$(stage1_objects))

# Stage 3 as a Turing card would run it.
$(B)/tests/turing_emulated.o: $(stage3_dir)/attention.cu | $(B)/tests/
	$(call say,CXX)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(call renamed,stage3_turing_emulated) -DEMULATED_ARCH=750 -x c++ -c $< -o $@
$(B)/tests/test_emulator: $(B)/tests/turing_emulated.o

$(B)/tests/%.o: tests/%.cpp | $(B)/tests/
	$(call say,CXX)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

test-emulator: $(B)/tests/test_emulator $(B)/tests/test_emulator_hopper $(B)/tests/test_recorded ## the tests of the emulator
	@tests/run.sh $^

test-gpu: $(B)/tests/test_gpu ## the tests that want a GPU; without one they fail
	@REQUIRE_GPU=1 JOBS=1 tests/run.sh $(B)/tests/test_gpu

# Where there is no GPU the tests for one are built and left alone; test-gpu would fail.
test: $(runs) $(tests) $(if $(wildcard bench/bench.c),build/bench) $(foreach n,$(stages),stage$n) ## run every test
	@tests/run.sh $(if $(wildcard /dev/nvidia0),$(tests),$(filter-out %/test_gpu,$(tests)))
	$(if $(wildcard /dev/nvidia0),,@echo "no GPU here: its tests were not run")

test_programs = $(wildcard tests/test_stage$1.c) $(if $(filter 1,$1),tests/test_walkthrough.c)
define test_rules
test-$1: $(patsubst tests/%.c,$(B)/tests/%,$(call test_programs,$1)) $(runs)
	@tests/run.sh $(patsubst tests/%.c,$(B)/tests/%,$(call test_programs,$1))
endef
$(foreach n,$(stages),$(eval $(call test_rules,$n)))

# ---- benchmarks: bench/README.md ----------------------------------------------------------------
OPENBLAS := $(wildcard /usr/include/*/cblas.h /usr/include/cblas.h /usr/include/*/openblas*/cblas.h)
bench_objects := $(B)/bench/bench.o $(B)/bench/row.o $(B)/bench/cpu_methods.o
ifneq ($(NVCC),)
bench_objects += $(B)/bench/gpu_bench.o $(B)/bench/baselines.o
endif
$(B)/bench/%.o: bench/%.c | $(B)/bench/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) -Ibench $(if $(OPENBLAS),-DWITH_OPENBLAS) $(CFLAGS) -c $< -o $@
$(B)/bench/%.o: bench/%.cu | $(B)/bench/
	$(call say,NVCC)
	$(Q)$(NVCC) -Icommon -Ibench -DWITH_CUDA $(NVCCFLAGS) $(cards) -MMD -MP -c $< -o $@
$(B)/bench/run: $(bench_objects) $(attentions) $(cuda_kernels) $(emulator) $(common) $(gpu)
	$(call say,LD)
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(if $(OPENBLAS),-lopenblas) $(if $(NVCC),-lcublas) $(cudart) -o $@

build/bench: $(B)/bench/run build/config
	@cp $< $@
commit := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
CSV := build/bench.csv
# OpenMP's threads would spin while OpenBLAS's own want the cores: waiting ones sleep, for all alike.
passive := OMP_WAIT_POLICY=passive
peers = python3 bench/torch_sdpa.py --csv $(CSV) $1 || echo "no PyTorch peers: see above"
.PHONY: bench bench-full bench-cpu
bench: build/bench ## a quick benchmark into CSV=build/bench.csv
	$(if $(wildcard /dev/nvidia0),$< --csv $(CSV) --commit $(commit) --to 4096 && { $(call peers,--to 4096); },@echo "no GPU here: CPU rows alone")
	$(passive) $< --csv $(CSV) --commit $(commit) --device cpu --heads 8 --head-dim 64 --from 512 --to 2048$(if $(wildcard /dev/nvidia0), --resume)
	$< --csv $(CSV) --fill-ratios
bench-full: build/bench ## N 128 to 16384, batch 1 and 4, on a GPU
	$< --csv $(CSV) --commit $(commit) --to 16384
	$< --csv $(CSV) --commit $(commit) --to 16384 --batch 4 --resume
	{ $(call peers,--to 16384); } && { $(call peers,--to 16384 --batch 4); }
	$< --csv $(CSV) --fill-ratios
bench-cpu: build/bench ## the CPU stages, OpenBLAS, and PyTorch if it is there
	$(passive) $< --csv $(CSV) --commit $(commit) --device cpu --heads 8 --head-dim 64 --from 512 --to 4096
	$(call peers,--device cpu --heads 8 --head-dim 64 --from 512 --to 4096)
	$< --csv $(CSV) --fill-ratios

# The figures, from the CSVs that the comment at the head of each script names.
figure   = gnuplot -e "theme='$(theme)'; format='$(or $(FORMAT),svg)'; $2" docs/figures/$1.gp
drawings = $(call figure,rebase) && $(call figure,rescale) && $(call figure,tiles) && $(call figure,traffic) && \
           $(call figure,ladder) && $(call figure,bench,what='latency') && $(call figure,bench,what='throughput') && \
           $(call figure,bench,what='memory')
.PHONY: figures
figures: ## draw docs/figures but the heat map, light and dark; FORMAT=png for slides
	$(foreach theme,light dark,$(drawings) &&) true

.PHONY: mutants
mutants: ## put known bugs in, one by one, and see each caught
	@tests/mutants.sh

sanitize-gpu: stage3 stage4 stage5 stage6 stage7 ## compute-sanitizer over the kernels; wants a GPU
	@tests/sanitize_gpu.sh

# The objects that nvcc made, what its assembler said of them, and the kernels before that as text.
kernel_objects := $(if $(NVCC),$(B)/$(stage3_dir)/scalar.o $(foreach n,$(cuda_stages),$(B)/$(stage$n_dir)/attention.o))
kernels: $(kernel_objects) $(kernel_objects:.o=.ptx) ## compile the kernels; fail on a spill or a store of a byte
	@test -n "$(NVCC)" || { echo "make kernels needs nvcc"; exit 1; }
	@tests/kernels.sh $(addsuffix .log,$(kernel_objects)) $(kernel_objects:.o=.ptx)

# ---- the course: course/README.md --------------------------------------------------------------
$(B)/course/%.o: course/%.c | $(B)/course/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@
parts := $(filter-out $(B)/common/stage%.o,$(common))
$(B)/course/checker: $(B)/course/checker.o $(B)/course/case.o $(parts)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(B)/course/sandbox: $(B)/course/sandbox.o $(B)/common/options.o $(B)/common/status.o
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) $^ -o $@

# A submission's program: neither the oracle nor another stage is linked in.
driver_parts := $(B)/course/case.o $(filter-out %/oracle.o,$(parts)) $(emulator) $(no_gpu)
# $1 driver, $2 its objects, $3 entry point, $4 the one that traces, $5 flags
define driver_rules
$(B)/course/driver_$1.o: course/driver.c | $(B)/course/
	$$(call say,CC)
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $5 -DFORWARD=attention_forward_$3 -DTRACED=attention_forward_$4 -c $$< -o $$@
$(B)/course/driver_$1: $(B)/course/driver_$1.o $2 $(driver_parts)
	$$(call say,LD)
	$$(Q)$$(CXX) $$(LDFLAGS) $$^ $$(LDLIBS) -o $$@
endef
$(eval $(call driver_rules,0,$(B)/$(stage0_dir)/attention.o,stage0,stage0))
$(eval $(call driver_rules,1,$(B)/$(stage1_dir)/attention.o $(B)/$(stage1_dir)/online_softmax.o,stage1,stage1,-DWITH_LOGITS -I$(stage1_dir)))
$(eval $(call driver_rules,2,$(B)/$(stage2_dir)/attention.o,stage2,stage2))
emulated = $(B)/$1_emulated.o $(B)/$1_emulated_traced.o
$(eval $(call driver_rules,3,$(call emulated,$(stage3_dir)/attention),stage3_emulated,stage3_emulated_traced))
$(eval $(call driver_rules,3_scalar,$(call emulated,$(stage3_dir)/scalar),stage3_scalar_emulated,stage3_scalar_emulated_traced))
$(eval $(call driver_rules,4,$(call emulated,$(stage4_dir)/attention),stage4_emulated,stage4_emulated_traced))
.PHONY: course-base
course-base: $(driver_parts) ## what every submission is linked with

.PHONY: handout grade check-mine gradescope course-check
handout: ## write a copy without the solutions: STAGE=2 OUT=dir
	@python3 course/handout.py $(if $(STAGE),--stage "$(STAGE)") $(if $(OUT),--out "$(OUT)")
grade: ## grade the folder DIR= [STAGE= STUDENT= OUT= FORMAT=]
	@CC=$(CC) python3 course/grade.py "$(DIR)" $(if $(STAGE),--stage "$(STAGE)") $(if $(OUT),--out "$(OUT)") \
	  $(if $(FORMAT),--format $(FORMAT)) $(if $(STUDENT),--student "$(STUDENT)")
check-mine: ## the grader's visible tests, here [STAGE=2 CASE="--seq 2"]
	@CC=$(CC) python3 course/grade.py . --visible $(if $(STAGE),--stage "$(STAGE)") $(if $(CASE),--case "$(CASE)")
gradescope: ## pack Gradescope's autograder: STAGE=2 OUT=autograder.zip
	@course/gradescope/pack.sh "$(STAGE)" "$(OUT)" $(SECRET)
course-check: $(foreach n,$(stages),stage$n) ## grade references, handouts, cheats, the bug zoo
	@CC=$(CC) python3 course/check.py

# ---- care -------------------------------------------------------------------------------------
c_files := $(wildcard common/*.[ch] common/*.cpp common/*.cu stage*_*/*.[ch] stage*_*/*.cu tests/*.[ch] \
           tests/*.cpp bench/*.[ch] bench/*.cu course/*.[ch])

check: ## format, clang-tidy, and the tests under ASan and UBSan
	$(MAKE) format-check tidy
	$(MAKE) SANITIZE=1 test

.PHONY: format-check
format: ## rewrite the sources by .clang-format
	clang-format -i $(c_files)
format-check: ## fail if make format would change anything
	clang-format --dry-run -Werror $(c_files)

tidy: ## clang-tidy's bugprone checks
	clang-tidy --quiet $(filter %.c,$(c_files)) -- $(CPPFLAGS) -std=gnu11 -fopenmp -DKERNEL=kernel \
	  -Dattention_forward=attention_forward -DFORWARD=attention_forward_stage3_emulated \
	  -DTRACED=attention_forward_stage3_emulated_traced -Ibench $(foreach n,$(stages),-I$(stage$n_dir)) 2>/dev/null

fuzz: ## fuzz the parsers with libFuzzer, a minute each
	@mkdir -p build/fuzz
	clang -std=gnu11 -g -O1 -fopenmp -Icommon -D_GNU_SOURCE -DKERNEL=matmul_kernel_base -DARCH_FIXED \
	  -fsanitize=fuzzer,address,undefined tests/fuzz_npy.c $(wildcard common/*.c) -lm -o build/fuzz/npy
	clang -std=gnu11 -g -O1 -fopenmp -Icommon -Istage1_online_softmax -D_GNU_SOURCE \
	  -DKERNEL=matmul_kernel_base -DARCH_FIXED -fsanitize=fuzzer,address,undefined tests/fuzz_logits.c \
	  $(filter-out %/main.c %/attention.c,$(wildcard stage1_online_softmax/*.c)) $(wildcard common/*.c) \
	  -lm -o build/fuzz/logits
	build/fuzz/npy -max_total_time=60 -print_final_stats=1
	build/fuzz/logits -max_total_time=60 -print_final_stats=1

# ---- the rest ---------------------------------------------------------------------------------
setup: ## install the Debian packages this needs; DEV=1: and check
	@missing=; for p in $(PACKAGES) $(if $(DEV),$(DEV_PACKAGES)); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	test -z "$$missing" || { sudo=$$(test $$(id -u) = 0 || echo sudo); \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing; }

clean: ## remove everything that was built
	rm -rf build $(foreach n,$(stages),stage$n $(stage$n_dir)/run)

# With `make setup stage1` the packages come first, also under -j.
ifneq ($(filter setup,$(MAKECMDGOALS)),)
$(B)/%/: | setup
.NOTPARALLEL:
endif

$(B)/ $(B)/common/ $(B)/tests/ $(B)/bench/ $(B)/course/ $(foreach n,$(stages),$(B)/$(stage$n_dir)/):
	@mkdir -p $@

-include $(wildcard $(B)/*.d $(B)/*/*.d)
