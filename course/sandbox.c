// sandbox.c: runs one command that nobody vouches for, within limits, and tells how it ended.
//     sandbox --dir DIR [--read DIR]... [--seconds N] [--mib N] -- COMMAND...
// The command may write below DIR alone, and read below DIR, each --read, and the system's own
// folders; it gets no TCP (from Linux 6.7 on), `--seconds` of wall clock, four times that of
// processor time for all its threads, and `--mib` of memory. Its output goes to DIR/stdout and
// DIR/stderr. Whatever it started is killed with it. On stdout then stands one line of JSON: exit
// (or null), signal (or null), timeout, cpu_seconds, rss_mib.
//
// The walls are Landlock (Linux 5.13 and up; no privilege needed) and, for root, another user's
// identity. Containers often forbid the namespaces that other sandboxes need. The grader tries
// whether the walls stand before it relies on them. Source: Linux, userspace-api/landlock.
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

enum { NOBODY = 65534, READS_MAX = 16 };

// Rights by the version that brought them; older headers do not name the newer ones.
enum {
    READING =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    RIGHTS_1 = (1 << 13) - 1, // files and folders
    REFER = 1 << 13,          // version 2
    TRUNCATE = 1 << 14,       // version 3
};
typedef struct {
    __u64 files, net, scoped; // struct landlock_ruleset_attr as of version 6
} ruleset;

static void die(const char *what)
{
    fprintf(stderr, "sandbox: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void allow(int rules, const char *path, __u64 rights)
{
    struct landlock_path_beneath_attr beneath = {.allowed_access = rights,
                                                 .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    if (beneath.parent_fd < 0) return; // not on this system
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0)) die(path);
    close(beneath.parent_fd);
}

static void wall_off(const char *dir, const char *const *reads, int read_count)
{
    static const char *const system_folders[] = {"/usr", "/lib",  "/lib64", "/bin",
                                                 "/etc", "/proc", "/sys"};
    const long version =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) return; // then only the other user's identity stands between
    ruleset attributes = {.files =
                              RIGHTS_1 | (version > 1 ? REFER : 0) | (version > 2 ? TRUNCATE : 0)};
    if (version > 3) attributes.net = 3;    // TCP: bind, connect
    if (version > 5) attributes.scoped = 3; // abstract sockets, signals
    const size_t size = version > 5 ? sizeof attributes : version > 3 ? 16 : 8;
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, size, 0);
    if (rules < 0) die("landlock");
    allow(rules, dir, attributes.files);
    for (int i = 0; i < read_count; i++) allow(rules, reads[i], READING);
    for (size_t i = 0; i < sizeof system_folders / sizeof *system_folders; i++)
        allow(rules, system_folders[i], READING);
    allow(rules, "/dev/null",
          LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
              (attributes.files & TRUNCATE));
    allow(rules, "/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE);
    if (syscall(SYS_landlock_restrict_self, rules, 0)) die("landlock");
    close(rules);
}

static void limit(int what, rlim_t value)
{
    if (setrlimit(what, &(struct rlimit){value, value})) die("setrlimit");
}

static void redirect(const char *dir, const char *name, int to)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0 || dup2(file, to) < 0) die(path);
}

static void kill_descendants(void)
{
    // What a dead child started is this process's child now (PR_SET_CHILD_SUBREAPER).
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (int round = 0; round < 1000; round++) {
        FILE *children = fopen(path, "re");
        int pid, found = 0;
        while (children && fscanf(children, "%d", &pid) == 1) found += kill(pid, SIGKILL) == 0;
        if (children) fclose(children);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (!found) return;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

int main(int argc, char **argv)
{
    const char *dir = NULL, *reads[READS_MAX];
    int read_count = 0, at = 1;
    int64_t seconds = 10, mib = 4096;
    bool understood = true;
    for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
        const char *value = argv[at + 1];
        if (strcmp(argv[at], "--dir") == 0)
            dir = value;
        else if (strcmp(argv[at], "--read") == 0 && read_count < READS_MAX)
            reads[read_count++] = value;
        else if (strcmp(argv[at], "--seconds") == 0)
            understood &= parse_integer(value, 1, 86400, &seconds);
        else if (strcmp(argv[at], "--mib") == 0)
            understood &= parse_integer(value, 1, 1 << 20, &mib);
        else
            break;
    }
    if (!dir || !understood || at + 1 >= argc || strcmp(argv[at], "--") != 0) {
        fprintf(stderr, "usage: sandbox --dir DIR [--read DIR]... [--seconds N] [--mib N] -- "
                        "COMMAND...\n");
        return 2;
    }
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        sigprocmask(SIG_UNBLOCK, &child_ended, NULL);
        setsid();
        const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (nothing < 0 || dup2(nothing, 0) < 0) die("/dev/null");
        redirect(dir, "stdout", 1);
        redirect(dir, "stderr", 2);
        if (chdir(dir)) die(dir);
        limit(RLIMIT_CPU, (rlim_t)seconds * 4); // of all its threads
        limit(RLIMIT_AS, (rlim_t)mib << 20);
        limit(RLIMIT_FSIZE, 256 << 20);
        limit(RLIMIT_CORE, 0);
        if (geteuid() == 0 && (setgid(NOBODY) || setuid(NOBODY))) die("setuid");
        limit(RLIMIT_NPROC, 512);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
        wall_off(dir, reads, read_count);
        execvp(argv[at + 1], argv + at + 1);
        die(argv[at + 1]);
    }
    const struct timespec deadline = {seconds, 0};
    int status = 0, seen;
    bool timeout = false;
    struct rusage used;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while ((seen = wait4(child, &status, WNOHANG, &used)) == 0 && !timeout) {
        sigtimedwait(&child_ended, NULL, &(struct timespec){0, 50000000});
        clock_gettime(CLOCK_MONOTONIC, &now);
        timeout = now.tv_sec - start.tv_sec >= deadline.tv_sec;
    }
    if (seen == 0) {
        kill(child, SIGKILL);
        wait4(child, &status, 0, &used);
    }
    kill(-child, SIGKILL); // its session; then what left it
    kill_descendants();
    char ended[64];
    if (WIFEXITED(status))
        snprintf(ended, sizeof ended, "\"exit\": %d, \"signal\": null", WEXITSTATUS(status));
    else
        snprintf(ended, sizeof ended, "\"exit\": null, \"signal\": %d", WTERMSIG(status));
    printf("{%s, \"timeout\": %s, \"cpu_seconds\": %.6f, \"rss_mib\": %.3f}\n", ended,
           timeout ? "true" : "false",
           (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec +
               (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec,
           (double)used.ru_maxrss / 1024);
    return 0;
}
