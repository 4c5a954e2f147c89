// Is every sample in every README what the program prints?
//
// Every line `$ ./stageN/run ...` in a fenced block is run, and the lines after it, up to the next
// `$` or the end of the block, must appear in the output in that order, next to each other. In a
// README line the token <=X stands for any number up to X, ~X for one within 1e-5 of X, ... for any
// one token, and ... alone on a line for any lines.
#include <criterion/criterion.h>
#include <glob.h>
#include <math.h>

#include "process.h"

enum { LINES = 2048, FILE_MAX = 1 << 17 };

static const char *const stages[] = {
    "stage0_explicit",    "stage1_online_softmax", "stage2_tiled_cpu", "stage3_fused_cuda",
    "stage4_causal_skip", "stage5_async_copy",     "stage6_hopper",    "stage7_overlap"};
enum { TESTED_STAGES = sizeof stages / sizeof *stages, FIRST_STAGE = 3 };

// Those of no stage, which are FIRST_STAGE, then those of all stages there are. Ends with globfree.
static glob_t all_readmes(void)
{
    const char *const patterns[] = {"README.md", "CONTRIBUTING.md", "docs/data/README.md",
                                    "stage*_*/README.md"};
    glob_t all = {0};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(glob(patterns[i], i ? GLOB_APPEND : 0, NULL, &all), 0, "%s", patterns[i]);
    return all;
}

static int split(char *text, char *lines[LINES])
{
    int count = 0;
    for (char *line = text; line && *line && count < LINES; count++) {
        lines[count] = line;
        line = strchr(line, '\n');
        if (line) *line++ = '\0';
    }
    return count;
}

static bool token_matches(const char *wanted, const char *found)
{
    if (strcmp(wanted, "...") == 0) return true;
    if (wanted[0] == '~') {
        char *end;
        const double value = strtod(found, &end), exact = strtod(wanted + 1, NULL);
        return end != found && *end == '\0' && fabs(value - exact) <= 1e-5 * fmax(1, fabs(exact));
    }
    if (strncmp(wanted, "<=", 2) != 0 || !wanted[2]) return strcmp(wanted, found) == 0;
    char *end_wanted, *end_found;
    const double bound = strtod(wanted + 2, &end_wanted), value = strtod(found, &end_found);
    return end_found != found && *end_found == '\0' && *end_wanted == '\0' && fabs(value) <= bound;
}

static bool line_matches(const char *wanted, const char *found)
{
    char a[1024], b[1024], *rest_a, *rest_b;
    snprintf(a, sizeof a, "%s", wanted);
    snprintf(b, sizeof b, "%s", found);
    char *x = strtok_r(a, " \t", &rest_a), *y = strtok_r(b, " \t", &rest_b);
    while (x && y && token_matches(x, y)) {
        x = strtok_r(NULL, " \t", &rest_a);
        y = strtok_r(NULL, " \t", &rest_b);
    }
    return !x && !y;
}

// How many of the lines of one stretch, up to a line of ..., stand at found[0], next to each other.
static int matched_here(char *const *wanted, int length, char *const *found, int found_count)
{
    int n = 0;
    while (n < length && n < found_count && line_matches(wanted[n], found[n])) n++;
    return n;
}

// The index of the first wanted line that finds no place, or -1. *near: the output's line that
// stands where it was looked for last, -1 if none of its stretch was found at all.
static int first_unmatched(char *const *wanted, int wanted_count, char *const *found,
                           int found_count, int *near)
{
    int at = 0;
    *near = -1;
    for (int i = 0; i < wanted_count; i++) {
        int length = 0, best = 0, best_at = -1;
        while (i + length < wanted_count && strcmp(wanted[i + length], "...") != 0) length++;
        if (length == 0) continue;
        for (; at < found_count && best < length; at++) {
            const int n = matched_here(wanted + i, length, found + at, found_count - at);
            if (n > best) best_at = at, best = n;
        }
        if (best < length) {
            if (best > 0) *near = best_at + best;
            return i + best;
        }
        at = best_at + length;
        i += length;
    }
    return -1;
}

static char *read_text(const char *path)
{
    char *text = calloc(1, FILE_MAX);
    FILE *file = fopen(path, "r");
    cr_assert(file && text, "%s", path);
    const size_t size = fread(text, 1, FILE_MAX - 1, file);
    cr_assert_lt(size, FILE_MAX - 1);
    fclose(file);
    return text;
}

static void run_sample(const char *readme, const char *command, char *const *lines, int count)
{
    process *p = process_run("%s", command);
    cr_expect(p->exit_code == 0 || p->exit_code == 2 || p->exit_code == 3, "%s: exit %d: %s",
              command, p->exit_code, p->error);
    char *text = p->exit_code == 0 ? p->out : p->error, *found[LINES];
    const int found_count = split(text, found);
    int near;
    const int miss = first_unmatched(lines, count, found, found_count, &near);
    if (miss >= 0)
        cr_expect(false, "%s: $ %s\n  it says      %s\n  after        %s\n  the output   %s",
                  readme, command, lines[miss], miss > 0 ? lines[miss - 1] : "(the first line)",
                  near < 0              ? "has no such line in the rest"
                  : near >= found_count ? "ends there"
                                        : found[near]);
    free(p);
}

// Whether `make name` is meant and is a target: stageN and the like stand for stage 0.
static void expect_target(const char *readme, const char *name, const char *targets)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    const size_t last = strlen(word) - 2;
    if (word[last] == 'N') word[last] = '0';
    cr_expect(strstr(targets, word), "%s: make %s: there is no such target", readme, name);
}

// Every target after a `make` that begins a command or a span of code. Returns how many.
static int check_targets(const char *readme, const char *text, const char *targets)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, "make ")); at++) {
        const bool command = at >= text + 4 && strncmp(at - 4, "    ", 4) == 0;
        const bool fenced = at >= text + 2 && strncmp(at - 2, "$ ", 2) == 0;
        if (!command && !fenced && (at == text || at[-1] != '`')) continue;
        char line[256], *rest;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 5, "`\n#&;|()"), at + 5);
        for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
            if (strchr(word, '=') || word[0] == '-') continue;
            expect_target(readme, word, targets);
            count++;
        }
    }
    return count;
}

// Runs the samples of a README, or with `run` false only looks at them; returns their number.
static int run_samples(const char *readme, bool run)
{
    char *text = read_text(readme), *lines[LINES];
    const int count = split(text, lines);
    int samples = 0;
    for (int i = 0; i < count; i++) {
        if (strncmp(lines[i], "```", 3) != 0) continue;
        int end = ++i;
        while (end < count && strncmp(lines[end], "```", 3) != 0) end++;
        cr_assert_lt(end, count, "%s: a block does not end", readme);
        while (i < end) {
            const int first = i++;
            while (i < end && strncmp(lines[i], "$ ", 2) != 0) i++;
            if (strncmp(lines[first], "$ ./stage", 9) != 0) continue;
            for (int l = first + 1; l < i; l++) // an error is one line, however long
                cr_expect(longest_line(lines[l]) <= 80 || strncmp(lines[l], "./stage", 7) == 0,
                          "%s: over 80 columns: %s", readme, lines[l]);
            cr_expect_gt(i - first - 1, 0, "%s: nothing to compare: %s", readme, lines[first]);
            if (run) run_sample(readme, lines[first] + 2, lines + first + 1, i - first - 1);
            samples++;
        }
    }
    free(text);
    return samples;
}

Test(matcher, does_it_tell_right_from_wrong)
{
    char *const found[] = {"a", "x 1.5e-7 ok", "b c", "d", "a", "e"};
    char *const good[][3] = {{"a", "x <=2e-7 ok", "b c"},
                             {"x ... ok", "...", "d"},
                             {"b   c", "d", "..."},
                             {"...", "a", "e"}, // not the first a
                             {"d", "a", "e"}};
    char *const bad[][3] = {{"a", "x <=1e-7 ok", "b c"},
                            {"a", "b c", "d"},
                            {"e", "...", "a"},
                            {"x <=2e-7", "b c", "d"},
                            {"x <=2e-7 ok more", "b c", "d"},
                            {"a", "x nan ok", "b c"},
                            {"...", "e", "f"},
                            {"b c", "...", "x <=1 ok"}};
    int near;
    for (int i = 0; i < 5; i++)
        cr_expect_eq(first_unmatched(good[i], 3, found, 6, &near), -1, "good %d", i);
    for (int i = 0; i < 8; i++)
        cr_expect_neq(first_unmatched(bad[i], 3, found, 6, &near), -1, "bad %d", i);
    cr_expect_eq(first_unmatched(bad[1], 3, found, 6, &near), 1);
    cr_expect_eq(near, 1, "the line that stands in its place");
    cr_expect_eq(first_unmatched(bad[0], 3, found, 0, &near), 0, "no output at all");
}

Test(matcher, do_its_tokens_match_what_they_stand_for)
{
    const char *const yes[][2] = {{"<=1", "1"},       {"<=1e-6", "9.9e-07"},     {"<=1", "0"},
                                  {"...", "x"},       {"~6.125568", "6.125569"}, {"1.00x", "1.00x"},
                                  {"~1e6", "999995"}, {"~-0.5", "-0.500001"}};
    const char *const no[][2] = {{"<=1", "nan"},  {"<=1", "1x"},   {"<=1", "-2"},
                                 {"<=1", "1.01"}, {"<=1", "inf"},  {"<=x", "1"},
                                 {"<=", "1"},     {"~1", "nan"},   {"~6.125568", "6.1257"},
                                 {"~0", "1e-4"},  {"1.00", "1.0"}, {"a", "b"}};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        cr_expect(token_matches(yes[i][0], yes[i][1]), "%s %s", yes[i][0], yes[i][1]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        cr_expect_not(token_matches(no[i][0], no[i][1]), "%s %s", no[i][0], no[i][1]);
}

Test(readme, do_the_samples_of_the_main_readme_hold)
{
    cr_expect_geq(run_samples("README.md", true), 1);
    run_samples("CONTRIBUTING.md", true);
    run_samples("docs/data/README.md", true);
}

Test(readme, do_the_samples_of_stage_0_hold)
{
    run_samples("stage0_explicit/README.md", true);
}

Test(readme, do_the_samples_of_stage_1_hold)
{
    run_samples("stage1_online_softmax/README.md", true);
}

Test(readme, do_the_samples_of_stage_2_hold)
{
    run_samples("stage2_tiled_cpu/README.md", true);
}

Test(readme, do_the_samples_of_stage_3_hold)
{
    run_samples("stage3_fused_cuda/README.md", true);
}

Test(readme, do_the_samples_of_stage_4_hold)
{
    run_samples("stage4_causal_skip/README.md", true);
}

Test(readme, do_the_samples_of_stage_5_hold)
{
    run_samples("stage5_async_copy/README.md", true);
}

Test(readme, do_the_samples_of_stage_6_hold)
{
    run_samples("stage6_hopper/README.md", true);
}

Test(readme, do_the_samples_of_stage_7_hold)
{
    run_samples("stage7_overlap/README.md", true);
}

// A stage without a README, a README without a sample, or a sample that no test above runs.
Test(readme, does_every_stage_have_samples_that_a_test_runs)
{
    char path[128];
    for (int s = 0; s < TESTED_STAGES; s++) {
        snprintf(path, sizeof path, "%s/README.md", stages[s]);
        cr_expect_geq(run_samples(path, false), 3, "%s: too few samples", path);
    }
    glob_t all = all_readmes();
    for (size_t r = FIRST_STAGE; r < all.gl_pathc; r++) {
        const char *readme = all.gl_pathv[r];
        bool tested = false;
        for (int s = 0; s < TESTED_STAGES; s++)
            tested |= strncmp(readme, stages[s], strlen(stages[s])) == 0;
        cr_expect(tested, "%s: no test here runs its samples", readme);
    }
    globfree(&all);
}

Test(readme, do_all_relative_links_lead_somewhere)
{
    glob_t all = all_readmes();
    for (size_t r = 0; r < all.gl_pathc; r++) {
        const char *readme = all.gl_pathv[r];
        char *text = read_text(readme), path[512];
        const int folder = strrchr(readme, '/') ? (int)(strrchr(readme, '/') - readme) + 1 : 0;
        int links = 0;
        for (char *at = text; (at = strstr(at, "](")); at++) {
            const int length = (int)strcspn(at + 2, ")#");
            snprintf(path, sizeof path, "%.*s%.*s", folder, readme, length, at + 2);
            if (length == 0 || strstr(path, "://")) continue;
            cr_expect(exists(path), "%s links to %s", readme, path);
            links++;
        }
        if (r >= FIRST_STAGE) cr_expect_gt(links, 0, "%s links nowhere", readme);
        free(text);
    }
    globfree(&all);
}

Test(readme, does_make_know_every_target_they_name)
{
    process *database = make_run("-pn", "help");
    if (!database) cr_skip_test("build/config does not tell the compiler");
    char *targets = strstr(database->out, "\n.PHONY: ");
    cr_assert_not_null(targets);
    targets += strlen("\n.PHONY:");
    targets[strcspn(targets, "\n")] = ' '; // so that each name has a space on both sides
    targets[strcspn(targets, "\n")] = '\0';
    glob_t all = all_readmes();
    int count = 0;
    for (size_t r = 0; r < all.gl_pathc; r++) {
        char *text = read_text(all.gl_pathv[r]);
        count += check_targets(all.gl_pathv[r], text, targets);
        free(text);
    }
    cr_expect_gt(count, 10, "%d", count);
    globfree(&all);
    free(database);
}

Test(readme, does_every_stage_readme_have_its_parts_in_order)
{
    const char *const parts[] = {
        "**Goal.**", "## The idea",         " to read",     "## The memory it needs",
        "## Run it", "## Check it by hand", "## Exercises", "## What can go wrong",
        "## Next"};
    glob_t all = all_readmes();
    for (size_t r = FIRST_STAGE; r < all.gl_pathc; r++) {
        char *text = read_text(all.gl_pathv[r]), *at = text;
        for (int i = 0; i < 9; i++) {
            at = strstr(at, parts[i]);
            cr_assert_not_null(at, "%s lacks '%s', or has it out of order", all.gl_pathv[r],
                               parts[i]);
        }
        free(text);
    }
    globfree(&all);
}
