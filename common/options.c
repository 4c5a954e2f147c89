#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 64 };

bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value)
{
    const char *digits = text + (*text == '-' && least < 0);
    if (!isdigit((unsigned char)*digits)) return false; // strtoll would skip space and take a sign
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < least || number > most) return false;
    *value = number;
    return true;
}

bool parse_real(const char *text, double *value)
{
    const char *digits = text + (*text == '-');
    if (!isdigit((unsigned char)*digits) && *digits != '.') return false; // no inf, nan or space
    if (strpbrk(digits, "xX")) return false;                              // nor hexadecimal
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    // What a float cannot hold would become inf where it is used.
    if (errno != 0 || end == text || *end != '\0' || !(fabs(number) <= (double)FLT_MAX))
        return false;
    *value = number;
    return true;
}

static attention_status set_choice(const option *o, const char *text)
{
    char allowed[128] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(text, o->choices[i]) == 0) {
            *(int *)o->value = i;
            return ATTENTION_OK;
        }
        const size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", i ? ", " : "", o->choices[i]);
    }
    return status_fail(ATTENTION_BAD_ARGUMENT, "--%s '%s' is not one of %s", o->name, text,
                       allowed);
}

static attention_status set_value(const option *o, const char *text)
{
    if (o->given) *o->given = true;
    switch (o->kind) {
    case OPTION_FLAG: *(bool *)o->value = true; return ATTENTION_OK;
    case OPTION_CHOICE: return set_choice(o, text);
    case OPTION_INTEGER:
        if (parse_integer(text, o->least, o->most, o->value)) return ATTENTION_OK;
        if (o->most == INT64_MAX)
            return status_fail(ATTENTION_BAD_ARGUMENT,
                               "--%s '%s' is not a whole number from %" PRId64 " up", o->name, text,
                               o->least);
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--%s '%s' is not a whole number from %" PRId64 " to %" PRId64, o->name,
                           text, o->least, o->most);
    case OPTION_REAL:
        if (parse_real(text, o->value)) return ATTENTION_OK;
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--%s '%s' is not a finite decimal number that a float holds", o->name,
                           text);
    case OPTION_TEXT:
        *(const char **)o->value = text;
        if (*text) return ATTENTION_OK;
        return status_fail(ATTENTION_BAD_ARGUMENT, "--%s has an empty value", o->name);
    }
    return ATTENTION_OK;
}

attention_status options_parse(const option *table, int count, int argc, char **argv)
{
    struct option known[OPTIONS_MAX] = {0};
    for (int i = 0; i < count && i < OPTIONS_MAX - 1; i++)
        known[i] = (struct option){
            .name = table[i].name,
            .has_arg = table[i].kind == OPTION_FLAG ? no_argument : required_argument,
            .val = i + 1,
        };

    optind = 0; // start afresh, so that a test may parse twice
    opterr = 0; // our own sentences
    for (;;) {
        const int before = optind > 0 ? optind : 1;
        const int found = getopt_long(argc, argv, "+:", known, NULL);
        if (found == -1) break;
        if (found == ':')
            return status_fail(ATTENTION_BAD_ARGUMENT, "%s needs a value; see --help",
                               argv[before]);
        if (found == '?' && optopt > 0 && optopt <= count && argv[before][1] == '-')
            return status_fail(ATTENTION_BAD_ARGUMENT, "--%s takes no value; see --help",
                               table[optopt - 1].name);
        if (found == '?')
            return status_fail(ATTENTION_BAD_ARGUMENT,
                               "'%s' is not an option, or begins several; see --help",
                               argv[before]);
        const attention_status status = set_value(&table[found - 1], optarg);
        if (status != ATTENTION_OK) return status;
    }
    if (optind < argc)
        return status_fail(ATTENTION_BAD_ARGUMENT, "'%s' is not an option; see --help",
                           argv[optind]);
    return ATTENTION_OK;
}

void options_help(const option *table, int count)
{
    for (int i = 0; i < count; i++) {
        char left[48];
        snprintf(left, sizeof left, "--%s %s", table[i].name,
                 table[i].argument ? table[i].argument : "");
        printf("  %-22s %s\n", left, table[i].help);
    }
}
