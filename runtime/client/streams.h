/* runtime/client/streams.h - what flows between the caller's stdio and the command's, through pipes or
 * the sandbox's pty; never blocks, never grows beyond its buffers and what is kept. */
#pragma once
#include <poll.h>
#include <termios.h>

#include "base/str.h"
#include "base/termfilter.h"

enum { STREAMS_MAX_POLL = 6, STREAM_BUF = 65536 };

/* Where a stream of the command goes. */
struct stream_output {
    int fd;        /* host descriptor, or -1: into `kept` */
    bool terminal; /* filtered */
    uint64_t cap;  /* bytes; UINT64_MAX: none */
    uint64_t seen; /* result: all that came */
    int lost;      /* result: the error by which writing ended, a reader that went away is none */
    struct str kept;
};

struct stream {
    int from, to; /* -1: closed */
    bool is_input;
    struct stream_output *out; /* for output streams */
    size_t len, off;
    uint64_t passed;
    size_t rest; /* what was still on its way when the command ended */
    bool marked;
    struct termfilter filter;
    char buf[STREAM_BUF + 128 + TERMFILTER_ROOM];
};

struct streams {
    struct stream *s[3]; /* in, out, err; with a pty the second carries both */
    int tty;             /* host terminal in raw mode, or -1 */
    int master;          /* the sandbox's pty */
    struct termios saved;
    bool raw;
    pid_t guard; /* puts the terminal back if we are killed */
    int guard_pipe;
    int in; /* host descriptor, -1: nothing */
    struct stream_output *out;
};

/* Makes the pipes; stdio gets the command's ends. With `tty` there are none: the pty follows. */
int streams_open(struct streams *st, int in, struct stream_output *out, struct stream_output *err,
                 bool tty, int stdio[3], struct err **e);
/* The same for pipes that are there; takes our ends. */
void streams_attach(struct streams *st, int in, struct stream_output *out,
                    struct stream_output *err, const int ours[3]);
/* Takes the pty's master, after a look at what it is; the host's terminal goes raw. */
int streams_terminal(struct streams *st, int master);
void streams_window(const struct streams *st, uint16_t *rows, uint16_t *cols);
void streams_resize(const struct streams *st);
size_t streams_poll(struct streams *st, struct pollfd *fds);
void streams_serve(struct streams *st, const struct pollfd *fds);
/* Nobody is left who could write: what the pipes hold is the rest. */
void streams_command_gone(struct streams *st);
bool streams_drained(const struct streams *st);
/* The command has ended, others may hold its pipes: what they hold now is still the command's. */
void streams_ended(struct streams *st);
bool streams_pending(const struct streams *st); /* something waits to be written */
bool streams_rest(const struct streams *st);    /* not all of the command's own has been read */
/* Restores the terminal; safe to call twice. */
void streams_close(struct streams *st);
