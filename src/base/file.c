/*
 * Files, over POSIX calls. It knows no format.
 *
 * A file in the making is called "<path>.partial"; a second writer of the same path would share
 * that name, and nothing here keeps two runs out of one folder.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/memory.h"
#include "base/text.h"

/* What an empty file maps to: mmap refuses to map nothing. */
static const char no_bytes[1] = "";

static yoke_status open_error(const char *path, int error)
{
    const char *way_out = "";
    if (error == ENOENT || error == ENOTDIR) {
        way_out = "; check the path, which counts from the folder that yoke was started in";
    } else if (error == EACCES) {
        way_out = "; give yourself the right to read it (chmod u+r)";
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "cannot read '%s': %s%s", path, strerror(error), way_out);
}

static yoke_status map_descriptor(const char *path, int descriptor, const void **start,
                                  size_t *bytes)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0) {
        return YOKE_FAIL(YOKE_IO, "cannot examine '%s': %s", path, strerror(errno));
    }
    if (S_ISDIR(about.st_mode)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "'%s' is a directory; give the path of a file in it",
                         path);
    }
    if (!S_ISREG(about.st_mode)) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "'%s' is a pipe or a device; copy its content into a regular file", path);
    }
    *bytes = (size_t)about.st_size;
    *start = no_bytes;
    if (*bytes == 0) {
        return YOKE_OK;
    }
    void *mapped = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) {
        char size[16];
        return YOKE_FAIL(YOKE_IO, "cannot map the %s of '%s': %s",
                         yoke_text_bytes((double)*bytes, size, sizeof size), path, strerror(errno));
    }
    *start = mapped;
    return YOKE_OK;
}

yoke_status yoke_file_map(const char *path, const void **start, size_t *bytes)
{
    *start = NULL;
    *bytes = 0;
    /* Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return open_error(path, errno);
    }
    yoke_status status = map_descriptor(path, descriptor, start, bytes);
    if (status) {
        *start = NULL;
        *bytes = 0;
    }
    (void)close(descriptor);
    return status;
}

void yoke_file_unmap(const void *start, size_t bytes)
{
    if (start && bytes > 0) {
        /* munmap takes a pointer to what it may not write to either. */
        (void)munmap((void *)(uintptr_t)start, bytes);
    }
}

struct yoke_file {
    int descriptor;
    size_t written_bytes;
    char *path; /* both lie behind the struct, in the same block */
    char *partial;
};

yoke_status yoke_file_create(const char *path, yoke_file **file)
{
    static const char suffix[] = ".partial";
    *file = NULL;
    size_t path_bytes = strlen(path) + 1;
    yoke_file *made = yoke_block_alloc(sizeof *made + 2 * path_bytes + sizeof suffix);
    if (!made) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory to begin '%s'", path);
    }
    made->path = (char *)(made + 1);
    made->partial = made->path + path_bytes;
    memcpy(made->path, path, path_bytes);
    (void)snprintf(made->partial, path_bytes + sizeof suffix, "%s%s", path, suffix);
    made->descriptor = open(made->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (made->descriptor < 0) {
        yoke_status status = YOKE_FAIL(
            YOKE_IO, "cannot write '%s': %s; choose a folder that exists and may be written to",
            made->partial, strerror(errno));
        yoke_block_free(made);
        return status;
    }
    *file = made;
    return YOKE_OK;
}

yoke_status yoke_file_write(yoke_file *file, const void *data, size_t bytes)
{
    const char *rest = data;
    while (bytes > 0) {
        ssize_t n = write(file->descriptor, rest, bytes);
        if (n < 0 && errno != EINTR) {
            char size[16];
            return YOKE_FAIL(YOKE_IO, "cannot write '%s' beyond %s: %s", file->partial,
                             yoke_text_bytes((double)file->written_bytes, size, sizeof size),
                             strerror(errno));
        }
        if (n > 0) {
            rest += n;
            bytes -= (size_t)n;
            file->written_bytes += (size_t)n;
        }
    }
    return YOKE_OK;
}

/* A rename is on the disk only when its folder is. Some file systems cannot sync a folder, which
 * is no failure. */
static void sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    const char *folder = ".";
    if (slash) {
        folder = slash == path ? "/" : path;
        *slash = '\0';
    }
    int descriptor = open(folder, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        (void)close(descriptor);
    }
}

yoke_status yoke_file_commit(yoke_file *file)
{
    int error = fsync(file->descriptor) == 0 ? 0 : errno;
    if (close(file->descriptor) != 0 && !error) {
        error = errno;
    }
    file->descriptor = -1;
    if (!error && rename(file->partial, file->path) != 0) {
        error = errno;
    }
    if (error) {
        yoke_status status = YOKE_FAIL(YOKE_IO, "cannot finish '%s': %s; is the disk full?",
                                       file->path, strerror(error));
        yoke_file_abandon(file);
        return status;
    }
    sync_folder(file->path);
    yoke_block_free(file);
    return YOKE_OK;
}

void yoke_file_abandon(yoke_file *file)
{
    if (!file) {
        return;
    }
    if (file->descriptor >= 0) {
        (void)close(file->descriptor);
    }
    (void)unlink(file->partial);
    yoke_block_free(file);
}
