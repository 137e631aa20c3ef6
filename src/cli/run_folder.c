/*
 * Run folder. Relies on base/file.h for files that appear whole or not at all; only metrics.jsonl grows, line by line, so
 * that a run that is killed leaves the steps that it did.
 */
#include "cli/run_folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"

/* Any of these makes a folder one that holds a run, or that a run would overwrite. */
static const char *const run_files[] = {"model.safetensors", "metrics.jsonl", "config.yaml",
                                        "summary.json", "config.json"};

enum { MOST_TRIES = 1000, SUMMARY_BYTES = 1 << 20 };

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

yoke_status yoke_run_folder_check(const char *run_dir)
{
    struct stat info;
    if (!*run_dir || stat(run_dir, &info) != 0) {
        return YOKE_OK;
    }
    if (!S_ISDIR(info.st_mode)) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "run_dir %s is not a folder; name one that does not exist yet", run_dir);
    }
    if (access(run_dir, W_OK | X_OK) != 0) {
        int error = errno;
        return YOKE_FAIL(YOKE_BAD_INPUT, "run_dir %s cannot be written to: %s; name another folder",
                         run_dir, strerror(error));
    }
    for (size_t i = 0; i < sizeof run_files / sizeof *run_files; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", run_dir, run_files[i]);
        if (exists(path)) {
            return YOKE_FAIL(
                YOKE_BAD_INPUT,
                "run_dir %s already holds %s; name another folder, or move that one away", run_dir,
                run_files[i]);
        }
    }
    return YOKE_OK;
}

/* Length of the part of a path that is there: 0 if nothing is. */
static size_t existing_part(const char *path, yoke_arena *arena)
{
    char *part = yoke_arena_copy_text(arena, path);
    while (!exists(part)) {
        char *slash = strrchr(part, '/');
        if (!slash || slash == part) {
            return 0;
        }
        *slash = '\0';
    }
    return strlen(part);
}

/* Takes away, from the innermost outwards, the folders of a path that were not there before. */
static void remove_made(const char *path, size_t made_from, yoke_arena *arena)
{
    char *part = yoke_arena_copy_text(arena, path);
    char *slash = part;
    while (slash && strlen(part) > made_from) {
        (void)rmdir(part);
        slash = strrchr(part, '/');
        if (slash) {
            *slash = '\0';
        }
    }
}

/* A full disk is the machine's fault; a place where no folder can be is the user's. */
static yoke_status fail_mkdir(const char *path, int error)
{
    yoke_code code = error == ENOSPC || error == EIO ? YOKE_IO : YOKE_BAD_INPUT;
    return YOKE_FAIL(code, "cannot make the folder %s: %s; name another with --run_dir", path,
                     strerror(error));
}

/* Makes a folder and those above it, as far as they are missing. */
static yoke_status make_folders(char *path)
{
    for (char *end = path; end;) {
        end = strchr(end + 1, '/');
        if (end) {
            *end = '\0';
        }
        yoke_status status = YOKE_OK;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            status = fail_mkdir(path, errno);
        }
        if (end) {
            *end = '/';
        }
        YOKE_TRY(status);
    }
    return YOKE_OK;
}

static yoke_status make_named(yoke_run_folder *folder, const char *run_dir, yoke_arena *arena)
{
    char *path = yoke_arena_copy_text(arena, run_dir);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--) {
        path[length - 1] = '\0';
    }
    folder->made_from = existing_part(path, arena);
    yoke_status status = make_folders(path);
    if (status) {
        remove_made(path, folder->made_from, arena);
        return status;
    }
    folder->path = path;
    return YOKE_OK;
}

/* Makes a folder below runs/, if no other run was faster: its mkdir decides. */
static yoke_status make_alone(yoke_run_folder *folder, char *path, yoke_arena *arena, bool *made)
{
    size_t made_from = existing_part(path, arena);
    YOKE_TRY(make_folders(yoke_arena_copy_text(arena, "runs")));
    *made = mkdir(path, 0777) == 0;
    int error = errno;
    if (!*made && error != EEXIST) {
        remove_made(path, made_from, arena);
        return fail_mkdir(path, error);
    }
    folder->path = path;
    folder->made_from = made_from;
    return YOKE_OK;
}

/* runs/<model>-<time>, with a number behind it if two runs begin in one second. */
static yoke_status make_new(yoke_run_folder *folder, const char *model_name, yoke_arena *arena)
{
    char stamp[32] = "";
    struct tm local;
    time_t now = time(NULL);
    if (localtime_r(&now, &local)) {
        (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
    }
    for (int try = 1; try <= MOST_TRIES; try++) {
        char *path = yoke_arena_print(arena, try == 1 ? "runs/%s-%s" : "runs/%s-%s-%d", model_name,
                                      stamp, try);
        bool made;
        YOKE_TRY(make_alone(folder, path, arena, &made));
        if (made) {
            return YOKE_OK;
        }
    }
    return YOKE_FAIL(YOKE_IO, "runs/%s-%s and %d more exist; name a folder with --run_dir",
                     model_name, stamp, MOST_TRIES);
}

static yoke_status write_text(const char *path, const char *text)
{
    yoke_file *file;
    YOKE_TRY(yoke_file_create(path, &file));
    yoke_status status = yoke_file_write(file, text, strlen(text));
    if (status) {
        yoke_file_abandon(file);
        return status;
    }
    return yoke_file_commit(file);
}

static yoke_status write_first_files(yoke_run_folder *folder, const yoke_run_config *run,
                                     yoke_arena *arena)
{
    const char *metrics = yoke_arena_print(arena, "%s/metrics.jsonl", folder->path);
    /* First, because it can be made only once: of two runs in one folder one ends here, and spoils nothing. */
    folder->metrics = fopen(metrics, "wx");
    if (!folder->metrics && errno == EEXIST) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "another run has begun in %s; name another with --run_dir",
                         folder->path);
    }
    if (!folder->metrics) {
        int error = errno;
        return YOKE_FAIL(YOKE_IO, "cannot make %s: %s", metrics, strerror(error));
    }
    yoke_status status = write_text(yoke_arena_print(arena, "%s/config.yaml", folder->path),
                                    yoke_run_config_print(run, arena));
    if (status) {
        (void)fclose(folder->metrics);
        (void)unlink(metrics);
    }
    return status;
}

yoke_status yoke_run_folder_create(yoke_run_folder *folder, const yoke_run_config *run,
                                   yoke_arena *arena)
{
    *folder = (yoke_run_folder){0};
    const char *run_dir = run->config.run_dir;
    YOKE_TRY(yoke_run_folder_check(run_dir));
    YOKE_TRY(*run_dir ? make_named(folder, run_dir, arena)
                      : make_new(folder, run->model_name, arena));
    yoke_status status = write_first_files(folder, run, arena);
    if (status) {
        remove_made(folder->path, folder->made_from, arena);
        *folder = (yoke_run_folder){0};
    }
    return status;
}

yoke_status yoke_run_folder_metrics(yoke_run_folder *folder, json_t *line)
{
    FILE *file = folder->metrics;
    bool good =
        json_dumpf(line, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF && fflush(file) == 0;
    int error = errno;
    json_decref(line);
    if (!good) {
        return YOKE_FAIL(YOKE_IO, "cannot write %s/metrics.jsonl: %s; make room on the disk",
                         folder->path, strerror(error));
    }
    return YOKE_OK;
}

yoke_status yoke_run_folder_summary(const yoke_run_folder *folder, const json_t *summary,
                                    yoke_arena *arena)
{
    char *text = yoke_arena_alloc(arena, SUMMARY_BYTES);
    size_t bytes = json_dumpb(summary, text, SUMMARY_BYTES - 2, JSON_INDENT(2));
    YOKE_ASSERT(bytes > 0 && bytes <= SUMMARY_BYTES - 2);
    text[bytes] = '\n';
    return write_text(yoke_arena_print(arena, "%s/summary.json", folder->path), text);
}

void yoke_run_folder_close(yoke_run_folder *folder)
{
    if (folder->metrics) {
        (void)fclose(folder->metrics);
    }
    *folder = (yoke_run_folder){0};
}
