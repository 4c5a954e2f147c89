# make help lists the targets. Only `make setup` needs root.
#
#   CC=clang      another compiler          ARCH=native   for this machine only, and no dispatch
#   SANITIZE=1    ASan and UBSan            WERROR=1      warnings are errors
#   V=1           show the commands
# Objects live in build/, one folder a combination; stageN_*/run is a copy of the last one built.

MAKEFLAGS += --no-builtin-rules
ifeq ($(origin CC),default)
CC := gcc
endif
CXX := $(subst clang,clang++,$(subst gcc,g++,$(CC)))

stage0_dir := stage0_explicit
stage1_dir := stage1_online_softmax
stage2_dir := stage2_tiled_cpu
stages     := 0 1 2

config  := $(notdir $(CC))$(if $(ARCH),-$(ARCH))$(if $(SANITIZE),-sanitize)
B       := build/$(config)
machine := $(shell $(CC) -dumpmachine 2>/dev/null)

CFLAGS   := -std=gnu11 -O3 -g -fopenmp -ffp-contract=off -Wall -Wextra $(if $(WERROR),-Werror) \
            $(if $(ARCH),-march=$(ARCH) -DARCH_FIXED)
CXXFLAGS := -std=c++17 -O2 -g -Wall -Wextra $(if $(WERROR),-Werror) $(if $(ARCH),-march=$(ARCH))
CPPFLAGS := -Icommon -D_GNU_SOURCE -MMD -MP
LDFLAGS  := -fopenmp
LDLIBS   := -lm
ifneq ($(SANITIZE),)
CFLAGS  += -O2 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
CXXFLAGS += -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
LDFLAGS += -fsanitize=address,undefined
endif

Q    := $(if $(V),,@)
say   = $(if $(V),,@echo "  $1  $@")

PACKAGES     := gcc g++ libc6-dev libcriterion-dev
DEV_PACKAGES := clang clang-format clang-tidy libclang-rt-14-dev libomp-dev gnuplot-nox

.PHONY: all help setup clean test check format tidy fuzz $(foreach n,$(stages),stage$n test-$n diff-$n)
.SECONDARY:
.DELETE_ON_ERROR:

all: $(foreach n,$(stages),stage$n) ## build every stage

help: ## this list
	@awk -F':.*## ' '/^[a-zA-Z0-9%_-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "  make stageN       build stage N (0 to 2), leave the link ./stageN to it"
	@echo "  make test-N       the tests of stage N"
	@echo "  make diff-N       what stage N changes in the stage before"
	@echo "  CC=clang  ARCH=native  SANITIZE=1  WERROR=1   change how things are built"

# The combination built last; copies of run follow it.
$(shell mkdir -p build; echo '$(config)' | cmp -s - build/config || echo '$(config)' > build/config)

# ---- common/ ----------------------------------------------------------------------------------
# The inner loops are compiled once an instruction set; x*y+c may fuse there and nowhere else.
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

common_sources := $(filter-out common/matmul_kernel.c,$(wildcard common/*.c))
common := $(common_sources:common/%.c=$(B)/common/%.o) $(kernels)

$(B)/common/%.o: common/%.c | $(B)/common/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# The emulator runs the source of CUDA kernels without CUDA (docs/emulator.md).
emulator := $(patsubst common/%.cpp,$(B)/common/%.o,$(wildcard common/*.cpp))
$(B)/common/%.o: common/%.cpp | $(B)/common/
	$(call say,CXX)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

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

diff-$1: ## what stage $1 changes
	@git --no-pager diff --no-index --color=auto $$(if $$(wildcard $(stage$(shell expr $1 - 1)_dir)),$(stage$(shell expr $1 - 1)_dir)/attention.c,/dev/null) $$(stage$1_dir)/attention.c || true
endef
$(foreach n,$(stages),$(eval $(call stage_rules,$n)))

attentions := $(foreach n,$(stages),$(B)/$(stage$n_dir)/attention.o)
$(foreach n,$(stages),$(B)/$(stage$n_dir)/run): $(common)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) -o $@
# A stage is checked against the one before and timed against stage 0, so it links both.
$(B)/$(stage0_dir)/run: $(stage0_objects)
$(B)/$(stage1_dir)/run: $(stage1_objects) $(B)/$(stage0_dir)/attention.o
$(B)/$(stage2_dir)/run: $(stage2_objects) $(B)/$(stage0_dir)/attention.o $(B)/$(stage1_dir)/attention.o

# ---- tests ------------------------------------------------------------------------------------
tests     := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_*.c)) $(B)/tests/test_emulator
runs      := $(foreach n,$(stages),$(stage$n_dir)/run)
$(B)/tests/%.o: tests/%.c | $(B)/tests/
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(foreach n,$(stages),-I$(stage$n_dir)) $(CFLAGS) -c $< -o $@
$(B)/tests/test_%: $(B)/tests/test_%.o $(attentions) $(common)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) -lcriterion $(LDLIBS) -o $@
$(B)/tests/test_walkthrough: $(filter-out %/main.o %/attention.o,$(stage1_objects))

$(B)/tests/test_emulator.o: tests/test_emulator.cpp | $(B)/tests/
	$(call say,CXX)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
$(B)/tests/test_emulator: $(B)/tests/test_emulator.o $(emulator) $(common)
	$(call say,LD)
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) -lcriterion $(LDLIBS) -lpthread -o $@

test: $(runs) $(tests) $(foreach n,$(stages),stage$n) ## run every test
	@tests/run.sh $(tests)

test_programs = $(wildcard tests/test_stage$1.c) $(if $(filter 1,$1),tests/test_walkthrough.c)
define test_rules
test-$1: $(patsubst tests/%.c,$(B)/tests/%,$(call test_programs,$1)) $(runs)
	@tests/run.sh $(patsubst tests/%.c,$(B)/tests/%,$(call test_programs,$1))
endef
$(foreach n,$(stages),$(eval $(call test_rules,$n)))

# ---- care -------------------------------------------------------------------------------------
c_files := $(wildcard common/*.[ch] common/*.cpp stage*_*/*.[ch] tests/*.[ch] tests/*.cpp)

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
	  -Dattention_forward=attention_forward $(foreach n,$(stages),-I$(stage$n_dir)) 2>/dev/null

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

$(B)/ $(B)/common/ $(B)/tests/ $(foreach n,$(stages),$(B)/$(stage$n_dir)/):
	@mkdir -p $@

-include $(wildcard $(B)/*.d $(B)/*/*.d)
