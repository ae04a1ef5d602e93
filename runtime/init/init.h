/* runtime/init/init.h - what petri-init's own files share. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/init/proto.h"

#ifndef PETRI_VERSION
#define PETRI_VERSION "unknown"
#endif

enum { CTL = 3 }; /* PID 1's connection to the keeper; in a supervisor the one to its client */

/* --- user.c: PID 1 of a sandbox that lives is no user's but its own, where there is more than one id */
/* Nothing is handed down any more. */
void user_settle(const struct proto_serve *s);
/* Files are the sandbox's user's from now on. */
void user_files(const struct proto_serve *s);
/* Becomes a user for good, with the capabilities that user 0 of a sandbox has, or none; an errno. Safe after
 * vfork(). */
int user_become(const struct proto_serve *s, uint32_t uid, uint32_t gid);

/* --- child.c: what becomes a command */
int pty_open(const struct proto_request *r, int *ret_slave); /* the master, or -1 */
/* A session of its own, with the request's descriptors or the pty as 0, 1 and 2. */
void child_stdio(const struct proto_request *r, int slave);
/* execvpe() with the environment's own PATH; returns an errno that tells "not found" from "not
 * executable". */
int exec_search(char **argv, char **env);
int say_hello(int sock);
struct rusage;
struct proto_exit exit_frame(int status, bool timed_out, const struct rusage *u);

/* --- tree.c: other processes, seen through /proc */
int children_open(void); /* the caller's list of children, or -1 */
/* SIGKILL to every child, and all below, of the caller but those that `spare` names; how many there
 * were, or -1 where /proc can't be read. What forks meanwhile is there the next time. */
int kill_children(int list, bool (*spare)(const void *arg, pid_t pid), const void *arg);
int count_others(void); /* processes but the caller that are no zombies; -1: can't tell */
uint64_t now_ns(void);  /* CLOCK_BOOTTIME */

/* --- supervise.c: one exec */
/* EXEC_ORDERED: a spare supervisor has not taken it yet. */
enum exec_state { EXEC_ORDERED, EXEC_RUNS, EXEC_ENDED, EXEC_BACKGROUND, EXEC_SPARE };
/* What PID 1 tells a supervisor with nothing to do; the client's connection comes with it. */
struct exec_order {
    uint64_t deadline; /* of now_ns(), 0: none */
    uint32_t slot;     /* of `states` */
};
struct exec_job {
    const struct proto_serving *base;
    struct exec_order order;
    volatile unsigned char
        *states; /* enum exec_state, shared with PID 1, changed before PROTO_EXIT */
    bool again;  /* JOBS brings the next one */
};
enum { JOBS = CTL + 1 };                        /* a supervisor's connection to PID 1 */
_Noreturn void supervise(struct exec_job *job); /* the client's connection is CTL */

/* --- files.c: files without a process */
struct fs_write; /* a file that FS_COMMIT has not put into place */
bool files_slow(const struct proto_fs_request *r);
/* One request's answer; -1: the connection is of no more use. files_slow() ones wait for the client, so
 * they need a process of their own. */
int files_answer(int conn, const char *cwd, const struct proto_fs_request *r, struct fs_write **w);
struct fs_write *fs_write_drop(struct fs_write *w); /* takes NULL, returns NULL */

/* --- serve.c */
_Noreturn void serve(const struct proto_serving *s, int listener);
