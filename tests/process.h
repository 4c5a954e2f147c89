// process.h: runs a program and captures what it says. No shell in between.
#ifndef PROCESS_H
#define PROCESS_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// AddressSanitizer reserves terabytes of address space, so nothing runs under an RLIMIT_AS with it.
#ifdef __SANITIZE_ADDRESS__ // gcc
#define UNDER_ASAN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) // clang
#define UNDER_ASAN 1
#endif
#endif

// A receipt ends within a minute; the sanitizers take their time.
#ifdef UNDER_ASAN
enum { PROCESS_SECONDS = 600 };
#else
enum { PROCESS_SECONDS = 60 };
#endif
enum { PROCESS_TEXT = 1 << 20, PROCESS_ARGUMENTS = 48 };

typedef struct {
    int exit_code;            // -1 if a signal ended it, SIGALRM after PROCESS_SECONDS
    int64_t peak_bytes;       // of resident memory
    char out[PROCESS_TEXT];   // standard output
    char error[PROCESS_TEXT]; // standard error
} process;

typedef struct {
    const char *input;     // standard input, or NULL for none
    size_t input_size;     // 0: strlen(input)
    const char *output_to; // a file for standard output instead of process.out
    size_t memory_limit;   // RLIMIT_AS in bytes; 0: none
    size_t file_limit;     // writes past so many bytes of a file fail, as on a full disk; 0: none
} process_options;

static inline void process_child(char *const *arguments, const process_options *o, int in, int out,
                                 int error)
{
    if (o->memory_limit) {
        const struct rlimit limit = {o->memory_limit, o->memory_limit};
        setrlimit(RLIMIT_AS, &limit);
    }
    if (o->file_limit) {
        const struct rlimit limit = {o->file_limit, o->file_limit};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (o->output_to && (out = open(o->output_to, O_WRONLY)) < 0) _exit(126);
    dup2(in, 0);
    dup2(out, 1);
    dup2(error, 2);
    alarm(PROCESS_SECONDS);
    execv(arguments[0], arguments);
    _exit(127);
}

// Reads both pipes until they close, so that neither can fill up and stall the program.
static inline void process_collect(process *p, int out, int error)
{
    struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = error, .events = POLLIN}};
    char *text[2] = {p->out, p->error};
    size_t used[2] = {0, 0};
    int open_pipes = 2;
    while (open_pipes > 0 && poll(fds, 2, -1) > 0)
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            const ssize_t got = read(fds[i].fd, text[i] + used[i], PROCESS_TEXT - 1 - used[i]);
            if (got > 0) {
                used[i] += (size_t)got;
                continue;
            }
            close(fds[i].fd);
            fds[i].fd = -1;
            open_pipes--;
        }
    text[0][used[0]] = text[1][used[1]] = '\0';
}

// Runs arguments[0] with the arguments, up to a NULL. The result is to be freed.
static inline process *process_run_list(const char *const *arguments, process_options o)
{
    int in[2], out[2], error[2], status;
    process *p = calloc(1, sizeof *p);
    cr_assert(p && pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 &&
              pipe2(error, O_CLOEXEC) == 0);
    const pid_t child = fork();
    if (child == 0) process_child((char *const *)arguments, &o, in[0], out[1], error[1]);
    close(in[0]);
    close(out[1]);
    close(error[1]);
    const size_t size = o.input_size ? o.input_size : o.input ? strlen(o.input) : 0;
    if (size) cr_assert_eq(write(in[1], o.input, size), (ssize_t)size); // fits into a pipe
    close(in[1]);
    process_collect(p, out[0], error[0]);
    struct rusage usage;
    cr_assert_eq(wait4(child, &status, 0, &usage), child);
    p->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    p->peak_bytes = (int64_t)usage.ru_maxrss << 10;
    if (WIFSIGNALED(status)) // say why in the place that a failed test prints
        snprintf(p->error + strlen(p->error), PROCESS_TEXT - strlen(p->error), "(ended by %s)\n",
                 strsignal(WTERMSIG(status)));
    return p;
}

// The command as words: split at single spaces; a word of '' is an empty argument.
static inline process *process_run_with(process_options o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline process *process_run_with(process_options o, const char *format, ...)
{
    char text[4096];
    const char *arguments[PROCESS_ARGUMENTS];
    int count = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        cr_assert_lt(count, PROCESS_ARGUMENTS - 1);
        arguments[count++] = strcmp(word, "''") == 0 ? "" : word;
    }
    arguments[count] = NULL;
    return process_run_list(arguments, o);
}

#define process_run(...) process_run_with((process_options){0}, __VA_ARGS__)

static inline int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

// The longest line, in bytes but for UTF-8 continuation bytes.
static inline int longest_line(const char *text)
{
    int longest = 0, length = 0;
    for (; *text; text++) {
        length = *text == '\n' ? 0 : length + ((*text & 0xc0) != 0x80);
        if (length > longest) longest = length;
    }
    return longest;
}

static inline bool exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

// A fresh folder for a test's files; removed by folder_remove.
static inline const char *folder_new(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/attention-test-XXXXXX");
    cr_assert_not_null(mkdtemp(path));
    return path;
}

static inline void folder_remove(const char *path)
{
    const char *const arguments[] = {"/bin/rm", "-rf", path, NULL};
    free(process_run_list(arguments, (process_options){0}));
}

// `make` as the current build was made (build/config), without what an outer make exports. NULL if
// the name of that build does not tell: with ARCH=, or a compiler whose name has a dash.
static inline process *make_run(const char *flag, const char *targets)
{
    char config[128] = "";
    FILE *file = fopen("build/config", "r");
    cr_assert_not_null(file, "tests run from the root of a built tree");
    cr_assert_eq(fscanf(file, "%127s", config), 1);
    fclose(file);
    char *sanitize = strstr(config, "-sanitize");
    if (sanitize) *sanitize = '\0';
    if (strchr(config, '-')) return NULL;
    unsetenv("MAKEFLAGS");
    unsetenv("MAKEOVERRIDES");
    unsetenv("MFLAGS");
    unsetenv("MAKELEVEL");
    return process_run("/usr/bin/env make %s --no-print-directory CC=%s %s %s", flag, config,
                       sanitize ? "SANITIZE=1" : "SANITIZE=", targets);
}

static inline int folder_entries(const char *path)
{
    const char *const arguments[] = {"/bin/ls", "-A", path, NULL};
    process *p = process_run_list(arguments, (process_options){0});
    const int entries = count_lines(p->out);
    free(p);
    return entries;
}

#endif
