// Is every sample in every README what the program prints?
//
// A block that begins with `$ ./stageN/run ...` is run, and its lines must appear in the output in
// that order, next to each other. In a README line the token <=X stands for any number up to X,
// ~X for one within 1e-5 of X, ... for any one token, and ... alone on a line for any lines.
#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>

#include "process.h"

enum { LINES = 2048, FILE_MAX = 1 << 17 };

static const char *const readmes[] = {"README.md",
                                      "CONTRIBUTING.md",
                                      "docs/data/README.md",
                                      "stage0_explicit/README.md",
                                      "stage1_online_softmax/README.md",
                                      "stage2_tiled_cpu/README.md"};
enum { READMES = sizeof readmes / sizeof *readmes, FIRST_STAGE = 3 };

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

// The index of the first wanted line that finds no place, or -1.
static int first_unmatched(char *const *wanted, int wanted_count, char *const *found,
                           int found_count)
{
    int at = 0;
    bool skip = true; // before the first line, and after a line of ...
    for (int i = 0; i < wanted_count; i++) {
        if (strcmp(wanted[i], "...") == 0) {
            skip = true;
            continue;
        }
        while (skip && at < found_count && !line_matches(wanted[i], found[at])) at++;
        if (at == found_count || !line_matches(wanted[i], found[at])) return i;
        at++;
        skip = false;
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
    cr_expect(p->exit_code == 0 || p->exit_code == 3, "%s: exit %d: %s", command, p->exit_code,
              p->error);
    char *text = p->exit_code == 0 ? p->out : p->error, *found[LINES];
    const int found_count = split(text, found);
    const int miss = first_unmatched(lines, count, found, found_count);
    cr_expect_eq(miss, -1, "%s: `%s` does not print\n  %s", readme, command,
                 miss < 0 ? "" : lines[miss]);
    free(p);
}

// Runs every sample of a README; returns how many there were.
static int run_samples(const char *readme)
{
    char *text = read_text(readme), *lines[LINES];
    const int count = split(text, lines);
    int samples = 0;
    for (int i = 0; i < count; i++) {
        if (strncmp(lines[i], "```console", 10) != 0) continue;
        int end = ++i;
        while (end < count && strncmp(lines[end], "```", 3) != 0) end++;
        cr_assert_lt(end, count, "%s: a block does not end", readme);
        cr_expect_eq(strncmp(lines[i], "$ ./stage", 9), 0, "%s: %s", readme, lines[i]);
        for (int l = i + 1; l < end; l++) // an error is one line, however long
            cr_expect(longest_line(lines[l]) <= 80 || lines[l][0] == '.', "%s: %s", readme,
                      lines[l]);
        cr_expect_gt(end - i - 1, 0, "%s: nothing to compare after %s", readme, lines[i]);
        run_sample(readme, lines[i] + 2, lines + i + 1, end - i - 1);
        samples++;
        i = end;
    }
    free(text);
    return samples;
}

Test(readme, does_the_matcher_itself_tell_right_from_wrong)
{
    char *const found[] = {"a", "x 1.5e-7 ok", "b c", "d"};
    char *const good[][3] = {
        {"a", "x <=2e-7 ok", "b c"}, {"x ... ok", "...", "d"}, {"b   c", "d", "..."}};
    char *const bad[][3] = {{"a", "x <=1e-7 ok", "b c"},
                            {"a", "b c", "d"},
                            {"d", "...", "a"},
                            {"x <=2e-7", "b c", "d"},
                            {"a", "x nan ok", "b c"}};
    for (int i = 0; i < 3; i++)
        cr_expect_eq(first_unmatched(good[i], 3, found, 4), -1, "good %d", i);
    for (int i = 0; i < 5; i++)
        cr_expect_neq(first_unmatched(bad[i], 3, found, 4), -1, "bad %d", i);
    cr_expect_not(token_matches("<=1", "nan"));
    cr_expect_not(token_matches("<=1", "1x"));
    cr_expect_not(token_matches("<=1", "-2"));
    cr_expect(token_matches("~6.125568", "6.125569"));
    cr_expect_not(token_matches("~6.125568", "6.1257"));
    cr_expect_not(token_matches("~1", "nan"));
}

Test(readme, do_the_samples_of_the_main_readme_hold)
{
    cr_expect_geq(run_samples("README.md"), 1);
    run_samples("CONTRIBUTING.md");
    run_samples("docs/data/README.md");
}

Test(readme, do_the_samples_of_stage_0_hold)
{
    cr_expect_geq(run_samples("stage0_explicit/README.md"), 3);
}

Test(readme, do_the_samples_of_stage_1_hold)
{
    cr_expect_geq(run_samples("stage1_online_softmax/README.md"), 3);
}

Test(readme, do_the_samples_of_stage_2_hold)
{
    cr_expect_geq(run_samples("stage2_tiled_cpu/README.md"), 4);
}

Test(readme, do_all_relative_links_lead_somewhere)
{
    for (int r = 0; r < READMES; r++) {
        char *text = read_text(readmes[r]), path[512];
        const int folder =
            strrchr(readmes[r], '/') ? (int)(strrchr(readmes[r], '/') - readmes[r]) + 1 : 0;
        int links = 0;
        for (char *at = text; (at = strstr(at, "](")); at++) {
            const int length = (int)strcspn(at + 2, ")#");
            snprintf(path, sizeof path, "%.*s%.*s", folder, readmes[r], length, at + 2);
            if (strstr(path, "://")) continue;
            cr_expect(exists(path), "%s links to %s", readmes[r], path);
            links++;
        }
        if (r >= FIRST_STAGE) cr_expect_gt(links, 0);
        free(text);
    }
}

Test(readme, does_every_stage_readme_have_its_parts_in_order)
{
    const char *const parts[] = {
        "**Goal.**", "## The idea",         " to read",     "## The memory it needs",
        "## Run it", "## Check it by hand", "## Exercises", "## What can go wrong",
        "## Next"};
    for (int r = FIRST_STAGE; r < READMES; r++) {
        char *text = read_text(readmes[r]), *at = text;
        for (int i = 0; i < 9; i++) {
            at = strstr(at, parts[i]);
            cr_assert_not_null(at, "%s lacks '%s', or has it out of order", readmes[r], parts[i]);
        }
        free(text);
    }
}
