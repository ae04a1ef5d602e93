/* cmd/attach.h - what commands that talk to a running sandbox share: which one, its errors, and a command
 * whose stdio is ours. */
#pragma once
#include "base/json.h"
#include "cmd/cmd.h"
#include "runtime/client/petri.h"
#include "runtime/client/streams.h"

/* A client and the sandbox that was named. */
struct target {
    struct petri_client *c;
    struct petri_sandbox *s;
    bool quiet;   /* no notes of a first start */
    bool started; /* result: there was one */
};
void target_free_p(struct target *t);
/* `name` NULL: $PETRI_SANDBOX or the project's own, which is made and started where there is none yet. */
int target_open(struct target *t, const char *name, struct petri_error *e);
/* "[NAME]:PATH" as docker cp has it: the part before the colon, *ret_path what follows it. NULL: no colon, or
 * one after a slash; then it is a path of this machine. */
char *target_prefix(const char *word, const char **ret_path);

/* As cmd_fail_err(). */
int cmd_fail_petri(int status, const struct petri_error *e, bool json);
/* Bytes as text; where they are not UTF-8, exact as KEY_base64 too. */
void cmd_json_bytes(struct jsonw *w, const char *key, const void *p, size_t n);

struct attach {
    bool tty;
    int in; /* host descriptor, or -1 */
    struct stream_output out, err;
    uint64_t timeout_ms;
    /* result: */
    struct petri_event end;
    bool held; /* something in the background has the output open still */
    uint64_t wall_ms;
};

/* Runs it to its end. -1: it did not start (end.status 125-127), or nobody knows how it ended. */
int attach_run(struct attach *a, struct petri_sandbox *s, const struct petri_exec_options *o,
               struct petri_error *e);
