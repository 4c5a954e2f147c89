// expect: does not build: .*error: @TREE@/stage2_tiled_cpu/attention.c: Permission denied
#include "@TREE@/stage2_tiled_cpu/attention.c"
