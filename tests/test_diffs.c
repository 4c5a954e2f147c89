// The differences between stages are a product: their size, the landmarks that a reader steers by,
// and the one symbol each stage exports. Run from the repository root.
#include "support.h"

static int changed_lines(const char *before, const char *after)
{
    char command[512];
    int lines = -1;
    snprintf(command, sizeof command,
             "strip() { sed -E 's@[ \t]*//.*@@; /^[ \t]*$/d' \"$1\"; }; strip %s >/tmp/diff-a.$$; "
             "strip %s >/tmp/diff-b.$$; diff /tmp/diff-a.$$ /tmp/diff-b.$$ | grep -c '^[<>]'; "
             "rm -f /tmp/diff-a.$$ /tmp/diff-b.$$",
             before, after);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    cr_assert_eq(fscanf(pipe, "%d", &lines), 1);
    pclose(pipe);
    return lines;
}

static const char *const stage_files[] = {"stage0_explicit/attention.c",
                                          "stage1_online_softmax/attention.c",
                                          "stage2_tiled_cpu/attention.c"};

Test(diffs, does_each_stage_stay_within_its_budget_of_changed_lines)
{
    const int first = changed_lines(stage_files[0], stage_files[1]);
    const int second = changed_lines(stage_files[1], stage_files[2]);
    cr_expect(first > 0 && first <= 70, "%d", first);
    cr_expect(second > 0 && second <= 90, "%d", second);
    char line[128], text[1 << 14]; // the main README's table says how many
    snprintf(line, sizeof line, "| %d |", first);
    FILE *readme = fopen("README.md", "r");
    cr_assert_not_null(readme);
    text[fread(text, 1, sizeof text - 1, readme)] = '\0';
    fclose(readme);
    cr_expect(strstr(text, line), "README.md does not say %d changed lines", first);
    snprintf(line, sizeof line, "| %d |", second);
    cr_expect(strstr(text, line), "README.md does not say %d changed lines", second);
}

Test(diffs, does_every_stage_carry_the_four_landmarks_in_order)
{
    const char *const landmarks[] = {"// 1. scores", "// 2. ", "// 3. output, not yet normalised",
                                     "// 4. normalise once"};
    for (int s = 0; s < 3; s++) {
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
