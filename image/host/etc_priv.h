/* image/host/etc_priv.h - what the files of the /etc copy share: rules, scan, contents, making. */
#pragma once
#include <stdint.h>
#include <time.h>

#include "base/str.h"
#include "image/host/etc.h"

/* Bumped when the rules or the files petri writes itself change: old copies are not used then. */
#define ETC_FORMAT 3

#define ETC_MAX_FILE (4u << 20) /* a larger file is left out */
#define ETC_MAX_TOTAL (64u << 20)
#define ETC_MAX_ENTRIES 20000u
#define ETC_MAX_DEPTH 12

enum etc_kind {
    ETC_DIR = 1,
    ETC_FILE,
    ETC_LINK,
    ETC_SOURCE, /* read to make a file of ours; not copied */
    ETC_STAMP,  /* changes with every package; only its time counts */
};

struct etc_entry {
    char *path; /* relative to /etc; "." is /etc itself */
    char *text; /* of a link */
    enum etc_kind kind;
    bool watch; /* looked at by every start */
    bool exec;
    uint64_t ino, size;
    int64_t ctime_ns;
    struct timespec mtime;
};

struct etc_list {
    struct etc_entry *v;
    size_t n, cap;
    uint64_t total;
};

void etc_list_free_p(struct etc_list *l);

/* etc_rules.c */
enum {
    RULE_ROOT = 1, /* only where user 0 installs packages */
    /* Comes from packages, which replace files by rename and change their database: of these only
     * the place itself is looked at by every start. */
    RULE_COLD = 2,
};
struct etc_rule {
    const char *path; /* the last component may be a pattern */
    unsigned flags;
};
extern const struct etc_rule etc_rules[];
extern const size_t etc_n_rules;
/* A name of a file or directory that never comes in, wherever it is. */
bool etc_name_denied(const char *name);
/* A name that petri writes itself or that has control characters in it. */
bool etc_name_odd(const char *name);
/* Whether a link at `path` (relative to /etc) may come in with this text. */
bool etc_link_allowed(const char *path, const char *text);
uint64_t etc_hash(uint64_t h, const char *s);

/* etc_scan.c: everything the rules let in, with what stat says about it. */
int etc_scan(int etc_fd, bool root_construction, struct etc_list *ret, struct err **e);
/* False when it can't be told or differs. */
bool etc_same(int etc_fd, const char *path, uint64_t ino, uint64_t size, int64_t ctime_ns,
              bool dir);

/* etc_content.c: what is inside a file. */
/* Takes user names and passwords out of URLs; false: the file holds a secret and stays out. */
bool etc_clean(const char *path, char *text, size_t *len);
/* The system's git configuration without credentials and includes, plus petri's own part. */
char *etc_gitconfig(const char *host, size_t len);

/* etc_users.c: NULL host text is an empty one. */
struct etc_accounts {
    struct str passwd, group, shadow, gshadow;
    gid_t shadow_gid; /* (gid_t)-1: there is no such group */
};
void etc_accounts(const char *passwd, const char *group, const struct host_user *u,
                  struct etc_accounts *ret);
void etc_accounts_free_p(struct etc_accounts *a);

/* etc_make.c: writes the copy into the empty directory out_fd. */
int etc_make(int etc_fd, int out_fd, const struct etc_list *l, const struct host_user *u,
             struct err **e);

/* etc_manifest.c: what a copy was made from. */
struct etc_manifest {
    uint64_t gen;
    const char *key, *boot_id;
    /* While these went on, a change may have left no other time stamp: such a manifest is not
     * trusted. Files were read in the first span, directories in the second. */
    int64_t read_from, read_to;
    int64_t scan_from, scan_to;
};
/* The generation of a manifest that fits key, boot and /etc as it is; 0: none. */
uint64_t etc_manifest_check(int dir_fd, int etc_fd, const char *key, const char *boot_id);
/* The generation of a manifest that lists the same things as `l`, apart from times of directories,
 * and that is sure about its files; 0: none. Fills in read_from and read_to. */
uint64_t etc_manifest_equal(int dir_fd, const char *key, const char *boot_id,
                            const struct etc_list *l, struct etc_manifest *m);
int etc_manifest_write(int dir_fd, const struct etc_manifest *m, const struct etc_list *l,
                       struct err **e);

/* etc.c: under the lock, removes what killed builders left, and generations that were replaced long
 * before `now` and that nobody holds. What can't be removed waits for the next time. */
void etc_sweep(int dir_fd, uint64_t current, time_t now);
