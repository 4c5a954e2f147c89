// The differences between stages are a product: their size, the landmarks that a reader steers by,
// and the one symbol each stage exports. Run from the repository root.
#include "support.h"

static int changed_lines(const char *before, const char *after)
{
    char command[512];
    int lines = -1;
    snprintf(command, sizeof command,
             "strip() { sed -E 's@[ \t]*//.*@@; /^[ \t]*$/d' \"$1\"; }; strip %s >/tmp/diff-a.$$; "
             "strip %s >/tmp/diff-b.$$; diff -w /tmp/diff-a.$$ /tmp/diff-b.$$ | grep -c '^[<>]'; "
             "rm -f /tmp/diff-a.$$ /tmp/diff-b.$$",
             before, after);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    cr_assert_eq(fscanf(pipe, "%d", &lines), 1);
    pclose(pipe);
    return lines;
}

static const char *const stage_files[] = {
    "stage0_explicit/attention.c",    "stage1_online_softmax/attention.c",
    "stage2_tiled_cpu/attention.c",   "stage3_fused_cuda/scalar.cu",
    "stage3_fused_cuda/attention.cu", "stage4_causal_skip/attention.cu",
    "stage5_async_copy/attention.cu", "stage6_hopper/attention.cu",
    "stage7_overlap/attention.cu"};
enum { FILES = sizeof stage_files / sizeof *stage_files, CUDA_FILES = 6 };

// A loop that became blockIdx or a thread indents its body less: like `make diff-N`, this does not
// count indentation.
Test(diffs, does_each_stage_stay_within_its_budget_of_changed_lines)
{
    const int budget[] = {70, 90, 110, 0, 12, 115, 100, 100}; // scalar to tensor cores has none
    int changed[FILES - 1];
    for (int i = 0; i < FILES - 1; i++) {
        changed[i] = changed_lines(stage_files[i], stage_files[i + 1]);
        cr_expect(changed[i] > 0 && (budget[i] == 0 || changed[i] <= budget[i]), "%s: %d",
                  stage_files[i + 1], changed[i]);
    }
    char line[7][128], text[1 << 14]; // the main README's table says how many
    snprintf(line[0], sizeof line[0], "| %d |", changed[0]);
    snprintf(line[1], sizeof line[1], "| %d |", changed[1]);
    snprintf(line[2], sizeof line[2], "| %d, then %d |", changed[2], changed[3]);
    snprintf(line[3], sizeof line[3], "| %d |", changed[4]);
    for (int i = 4; i < 7; i++) snprintf(line[i], sizeof line[i], "| %d |", changed[i + 1]);
    FILE *readme = fopen("README.md", "r");
    cr_assert_not_null(readme);
    text[fread(text, 1, sizeof text - 1, readme)] = '\0';
    fclose(readme);
    for (int i = 0; i < 7; i++)
        cr_expect(strstr(text, line[i]), "README.md does not say %s", line[i]);
}

Test(diffs, does_every_stage_carry_the_four_landmarks_in_order)
{
    const char *const landmarks[] = {"// 1. scores", "// 2. ", "// 3. output, not yet normalised",
                                     "// 4. normalise once"};
    for (int s = 0; s < FILES; s++) {
        char text[1 << 14];
        FILE *file = fopen(stage_files[s], "r");
        cr_assert_not_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        const char *at = text;
        for (int i = 0; i < 4; i++) {
            at = strstr(at, landmarks[i]);
            cr_assert_not_null(at, "%s: %s", stage_files[s], landmarks[i]);
        }
    }
}

// Sanitizers add their own, and clang the locks of a reduction, whose names begin with a dot.
Test(diffs, is_attention_forward_the_only_symbol_a_stage_exports)
{
    for (int s = 0; s < 3; s++) {
        char command[256], name[64] = "", more[64] = "", expected[64];
        snprintf(command, sizeof command,
                 "nm -g --defined-only build/$(cat build/config)/%.*s.o | awk '{print $3}' | grep "
                 "-v '^__odr_asan\\|^__asan\\|^[.]'",
                 (int)strlen(stage_files[s]) - 2, stage_files[s]);
        FILE *pipe = popen(command, "r");
        cr_assert_not_null(pipe);
        cr_assert_eq(fscanf(pipe, "%63s", name), 1);
        cr_expect_eq(fscanf(pipe, "%63s", more), EOF, "%s", more);
        pclose(pipe);
        snprintf(expected, sizeof expected, "attention_forward_stage%d", s);
        cr_expect_str_eq(name, expected);
    }
}

// nvcc keeps what a source keeps to itself apart by a number in its name, made from the source's
// path and the names it exports: two objects that shared one would share their kernels, and one
// would silently run the other's.
Test(diffs, does_no_cuda_object_share_a_name_with_another)
{
    char command[512], name[512] = "";
    snprintf(
        command, sizeof command,
        "for o in build/$(cat build/config)/stage[3-7]_*/*.o; do nm -g --defined-only $o | awk "
        "'$2 != \"V\" {print $3}' | grep -v '^__odr_asan\\|^_ZNSt\\|^_ZSt\\|^__asan' | sort "
        "-u; done | "
        "sort | uniq -d | grep -v '^_ZN8emulator\\|^main$\\|^print_receipts$\\|^_Z' ");
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    cr_expect_eq(fscanf(pipe, "%511s", name), EOF, "%s is in two objects", name);
    pclose(pipe);
    snprintf(
        command, sizeof command,
        "for o in build/$(cat build/config)/stage[3-7]_*/*.o; do nm -g --defined-only $o | awk "
        "'{print $3}' | grep GLOBAL__N__ | grep -o "
        "'GLOBAL__N__[0-9a-f]*_[0-9]*_[a-z_]*_cu_[0-9a-f]*' | sort -u; done | sort "
        "| uniq -d");
    pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    cr_expect_eq(fscanf(pipe, "%511s", name), EOF, "%s is in two objects", name);
    pclose(pipe);
}

Test(diffs, do_the_cuda_stages_export_their_entry_points_alone)
{
    const char *const objects[] = {"stage3_fused_cuda/scalar",     "stage3_fused_cuda/attention",
                                   "stage4_causal_skip/attention", "stage5_async_copy/attention",
                                   "stage6_hopper/attention",      "stage7_overlap/attention"};
    for (int s = 0; s < CUDA_FILES; s++) {
        char command[512], name[512];
        snprintf(
            command, sizeof command,
            "nm -g --defined-only build/$(cat build/config)/%s_emulated.o | awk '{print $3}' | "
            "grep -v "
            "'^__odr_asan\\|^__asan\\|^DW.ref\\|^_ZN8emulator\\|^_Z..cuda\\|^_ZSt\\|^_ZNSt'",
            objects[s]);
        FILE *pipe = popen(command, "r");
        cr_assert_not_null(pipe);
        int count = 0;
        while (fscanf(pipe, "%511s", name) == 1) {
            count++;
            cr_expect(strncmp(name, "attention_", 10) == 0, "%s exports %s", objects[s], name);
        }
        pclose(pipe);
        cr_expect_eq(count, s == 2 ? 3 : 2);
    }
}
