/* base/fs.h - files: reading and writing whole ones, atomic replacement, trees, safe look-up.
 * Crash: fs_write_atomic leaves either the old or the new content, and at most a `.tmp-*` file.
 */
#pragma once
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* Reads at most `max` bytes (an error beyond); NUL-terminated, ret_len may be NULL. */
int fs_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err **e);
/* Writes a small kernel file (sysctl, cgroup, id map) in one write(2). */
int fs_write_at(int dirfd, const char *path, const char *text, struct err **e);
/* Write-temp, fsync, rename, fsync the directory. */
int fs_write_atomic(int dirfd, const char *path, const void *p, size_t n, mode_t mode,
                    struct err **e);
int fs_write_all(int fd, const void *p, size_t n); /* 0 or -1 with errno */
int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t at);
/* Copies the rest of `in` to `out` (copy_file_range, else read/write). */
int fs_copy_fd(int in, int out, struct err **e);

/* Adds to a log that others add to as well; when it is longer than `max` it becomes PATH.1 and the next one begins. */
void fs_log(const char *path, const void *p, size_t n, off_t max);

/* mkdir -p; existing directories keep their mode. */
int fs_mkdirs(const char *path, mode_t mode, struct err **e);
/* Makes (or takes) a directory that must be ours alone: never a link, ours, closed to others. */
int fs_private_dir(const char *path, struct err **e);
/* rm -rf below dirfd, never following a link, never crossing into another mount. Missing is fine. */
int fs_remove_tree(int dirfd, const char *path, struct err **e);

/* openat2 with RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS plus `resolve`; fd or -1 with errno. */
int fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve);

bool fs_is_dir(const char *path);               /* follows links */
bool fs_exists(const char *path);               /* does not follow */
char *fs_readlink(int dirfd, const char *path); /* NULL with errno */
char *fs_realpath(const char *path);            /* NULL with errno */
char *fs_realpath_part(const char *path);       /* as far as it is there; NULL: nothing of it */

/* What is in an open directory, whose place in it stays; NULL with errno. */
DIR *fs_list(int dir);
/* As readdir(), without "." and "..". */
struct dirent *fs_next(DIR *d);
