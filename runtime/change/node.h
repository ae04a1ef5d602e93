/* runtime/change/node.h - what lies at a path of the project: looked at, compared and remembered.
 *
 * Owns:  nothing. Every path goes through openat2 beneath the project's root: no link is followed, no
 *        other mount entered, whatever somebody does to the directories meanwhile.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/json.h"

/* As an owner: whoever makes the file. */
#define NODE_ANY ((uid_t)-1)

enum node_kind { NODE_NONE, NODE_FILE, NODE_LINK, NODE_DIR, NODE_OTHER };

struct node {
    enum node_kind kind;
    mode_t mode; /* 07777 */
    uid_t uid;
    gid_t gid;
    uint64_t size;
    struct timespec mtime;
    char digest[65]; /* sha256 of a file's content or a link's text, hex; "" where there is none */
    char *link;      /* the text of a link; may be NULL */
    char *xattrs;    /* "name=hexvalue\n"...: what `ls` does not show; may be NULL */
    uint64_t at;     /* where the journal keeps the content; meaningless without one */
    bool
        foreign; /* in a journal: it holds an edit of the project's people that the sandbox never saw */
};
void node_free_p(struct node *n);
void node_copy(const struct node *from, struct node *to);
const char *node_kind_name(enum node_kind k);
enum node_kind node_kind_of(mode_t st_mode);

void node_write(struct jsonw *w, const char *key, const struct node *n);
int node_read(const struct json *j, struct node *ret, struct err **e);
/* Paths and link texts need not be UTF-8: what is not becomes the member KEY_hex. */
void node_write_path(struct jsonw *w, const char *key, const char *path);
char *node_read_path(const struct json *j, const char *key);

/* The directory that holds `path`, opened by walking down from root; *ret_name points into path.
 * ERR_NOT_FOUND where it is not there, ERR_DENIED where a link or another mount is in the way. */
int node_parent(int root, const char *path, int *ret_fd, const char **ret_name, struct err **e);
int node_open_dir(int root, const char *dir, int *ret_fd, struct err **e);

/* Kind, mode, owner, size, time, link text; NODE_NONE where nothing is there. `ret_st` may be NULL. */
int node_look(int dir, const char *name, struct node *ret, struct stat *ret_st, struct err **e);
/* The same from the project's root; NODE_NONE as well where a parent is missing, or a link or another mount in its
 * place: then nothing of the project is there. */
int node_look_at(int root, const char *path, struct node *ret, struct stat *ret_st, struct err **e);
/* Fills in digest of a file; fails where its content changes meanwhile (ERR_BUSY). */
int node_digest(int dir, const char *name, struct node *n, struct err **e);
int node_digest_at(int root, const char *path, struct node *n, struct err **e);
/* True when what lies at the name is of n's kind, mode and content. */
bool node_matches(int dir, const char *name, const struct node *n);
/* The same file with the same content as far as times tell; a rename alone changes nothing. */
bool node_same_stat(const struct stat *a, const struct stat *b);

/* sha256 of `size` bytes of `in` from `from` on, in hex; copies them to `to` of `out` on the way where
 * out >= 0 (holes stay holes). */
int node_hash_fd(int in, uint64_t from, uint64_t size, int out, uint64_t to, char ret[65],
                 struct err **e);
/* Attributes as text; files only. Overlay's own and capabilities stay out. */
char *node_xattrs(int fd);
/* Sets what node_xattrs() wrote; a file system that takes none of it is no failure. */
void node_set_xattrs(int fd, const char *text);
