#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static attention_status cannot_write(const char *path, int error)
{
    return status_fail(ATTENTION_BAD_FILE, "%s: cannot be written: %s", path, strerror(error));
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// A mkstemp template in the folder of `path`, so that the rename stays within one file system.
static char *scratch_template(const char *path)
{
    static const char base[] = ".output-XXXXXX";
    const size_t folder = (size_t)(base_name(path) - path);
    char *name = malloc(folder + sizeof base);
    if (!name) return NULL;
    memcpy(name, path, folder);
    memcpy(name + folder, base, sizeof base);
    return name;
}

// mkstemp's files are private; this one gets the mode fopen would have given it.
static mode_t default_mode(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static attention_status open_scratch(output_file *file, mode_t mode)
{
    file->scratch = scratch_template(file->path);
    if (!file->scratch)
        return status_fail(ATTENTION_NO_MEMORY, "%s: no memory for its name", file->path);
    const int descriptor = mkstemp(file->scratch);
    if (descriptor < 0) {
        const int error = errno;
        free(file->scratch); // nothing was made, so nothing is to be removed
        file->scratch = NULL;
        return cannot_write(file->path, error);
    }
    if (fchmod(descriptor, mode) != 0 || !(file->stream = fdopen(descriptor, "w"))) {
        const int error = errno;
        close(descriptor);
        return cannot_write(file->path, error);
    }
    return ATTENTION_OK;
}

attention_status output_file_open(output_file *file, const char *path)
{
    *file = (output_file){0};
    struct stat target, link;
    const bool exists = stat(path, &target) == 0;
    if (!exists && errno != ENOENT) return cannot_write(path, errno);
    if (!exists && *base_name(path) == '\0') return cannot_write(path, *path ? EISDIR : ENOENT);
    // A rename would also replace a read-only file.
    if (exists && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0)
        return cannot_write(path, errno);

    // A symbolic link stays one: the file it names is replaced.
    const bool follow = exists && lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
    const bool regular = !exists || S_ISREG(target.st_mode);
    file->path = follow && regular ? realpath(path, NULL) : strdup(path);
    if (!file->path) return cannot_write(path, errno);

    attention_status status = ATTENTION_OK;
    if (regular)
        status = open_scratch(file, exists ? target.st_mode & 0777 : default_mode());
    else if (!(file->stream = fopen(path, "we")))
        status = cannot_write(path, errno);
    if (status != ATTENTION_OK) output_file_discard(file);
    return status;
}

attention_status output_file_commit(output_file *file)
{
    int error = errno; // of an earlier write, after which closing may well succeed
    bool written = !ferror(file->stream);
    if (fclose(file->stream) != 0) {
        written = false;
        error = errno;
    }
    file->stream = NULL;
    if (written && file->scratch && rename(file->scratch, file->path) != 0) {
        written = false;
        error = errno;
    }

    attention_status status = ATTENTION_OK;
    if (written) {
        free(file->scratch); // the name is gone: discard must not remove it
        file->scratch = NULL;
    } else {
        status = status_fail(ATTENTION_WRITE_FAILED, "%s: could not be written in full: %s",
                             file->path, strerror(error ? error : EIO));
    }
    output_file_discard(file);
    return status;
}

void output_file_discard(output_file *file)
{
    if (file->stream) fclose(file->stream);
    if (file->scratch) unlink(file->scratch);
    free(file->scratch);
    free(file->path);
    *file = (output_file){0};
}

attention_status stdout_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return ATTENTION_OK;
    return status_fail(ATTENTION_WRITE_FAILED, "standard output: could not be written in full: %s",
                       strerror(errno ? errno : EIO));
}
