/* runtime/change/history.c - petri history; which promotions are in place; recovery as a command. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/recover.h"
#include "runtime/change/talk.h"
#include "runtime/change/undo.h"

static void push(struct standing **v, size_t *n, unsigned promotion, unsigned last)
{
    *v = realloc(*v, (*n + 1) * sizeof **v);
    if (!*v)
        abort();
    (*v)[(*n)++] = (struct standing){ promotion, last };
}

static bool take(struct standing *v, size_t *n, unsigned promotion)
{
    for (size_t i = 0; i < *n; i++)
        if (v[i].promotion == promotion) {
            memmove(&v[i], &v[i + 1], (*n - i - 1) * sizeof *v);
            (*n)--;
            return true;
        }
    return false;
}

void standings_make(const struct op *v, size_t n, struct standings *ret)
{
    struct standings s = { 0 };

    for (size_t i = 0; i < n; i++) {
        if (v[i].open || v[i].aborted)
            continue;
        if (!strcmp(v[i].kind, "promote")) {
            push(&s.done, &s.n_done, v[i].number, v[i].number);
            s.n_undone = 0; /* a new beginning: what was undone can't be put on top of it */
        } else if (!strcmp(v[i].kind, "undo") && take(s.done, &s.n_done, v[i].of)) {
            push(&s.undone, &s.n_undone, v[i].of, v[i].number);
        } else if (!strcmp(v[i].kind, "redo") && take(s.undone, &s.n_undone, v[i].of)) {
            push(&s.done, &s.n_done, v[i].of, v[i].number);
        }
    }
    *ret = s;
}

void standings_free_p(struct standings *s)
{
    free(s->done);
    free(s->undone);
    *s = (struct standings){ 0 };
}

int undo_here(const struct op *v, size_t n, dev_t *ret_dev, ino_t *ret_ino, struct err **e)
{
    AUTOCLOSE int fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st, before = { 0 };

    for (int i = 0; fd >= 0 && i < 4096 && fstat(fd, &st) == 0; i++) {
        if (i && st.st_dev == before.st_dev && st.st_ino == before.st_ino)
            break;
        for (size_t k = 0; k < n; k++)
            if (v[k].dev == st.st_dev && v[k].ino == st.st_ino) {
                *ret_dev = st.st_dev;
                *ret_ino = st.st_ino;
                return 0;
            }
        before = st;
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close_p(&fd);
        fd = up;
    }
    return err_new(e, ERR_NOT_FOUND,
                   "nothing was promoted into this project yet (a sandbox's own files: petri "
                   "rollback)");
}

static const char *state_of(const struct op *o, const struct standings *s)
{
    if (o->open)
        return "interrupted";
    if (o->aborted)
        return "taken back";
    if (strcmp(o->kind, "promote"))
        return "done";
    for (size_t i = 0; i < s->n_done; i++)
        if (s->done[i].promotion == o->number)
            return "in place";
    return "undone";
}

static void print_json(const struct op *v, size_t n, const struct standings *s)
{
    AUTOJSONW struct jsonw w = { .pretty = true };

    jw_arr(&w, NULL);
    for (size_t i = n; i-- > 0;) {
        jw_obj(&w, NULL);
        jw_u64(&w, "journal", v[i].number);
        jw_str(&w, "kind", v[i].kind);
        if (v[i].of)
            jw_u64(&w, "of", v[i].of);
        jw_str(&w, "state", state_of(&v[i], s));
        jw_str(&w, "created", v[i].created);
        jw_str(&w, "sandbox", v[i].sandbox);
        jw_str(&w, "name", v[i].name);
        jw_str(&w, "change", v[i].change);
        jw_u64(&w, "files", v[i].files);
        jw_str(&w, "project", v[i].project);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    talk_json(&w);
}

static void print_rows(const struct op *v, size_t n, const struct standings *s)
{
    talk_line("%-7s  %-20s  %-11s  %-11s  %5s  %-16s  %s", "JOURNAL", "WHEN", "WHAT", "STATE",
              "FILES", "SANDBOX", "CHANGE");
    for (size_t i = n; i-- > 0;) {
        AUTOFREE char *what =
            v[i].of ? str_printf("%s %u", v[i].kind, v[i].of) : str_dup(v[i].kind);
        talk_line("%-7u  %-20s  %-11s  %-11s  %5zu  %-16s  %.12s", v[i].number, v[i].created, what,
                  state_of(&v[i], s), v[i].files, v[i].name ? v[i].name : "-",
                  v[i].change ? v[i].change : "-");
    }
}

int history_main(const char *data, int argc, char **argv)
{
    CLEANUP(journal_close_p) struct journal j = { .fd = -1 };
    CLEANUP(words_free_p) struct words w = { 0 };
    CLEANUP(standings_free_p) struct standings s = { 0 };
    struct op *v = NULL;
    size_t n = 0;
    dev_t dev = 0;
    ino_t ino = 0;
    struct err *e = NULL;

    words_split(argc, argv, &w);
    if (journal_open(data, &j, &e) < 0 || recover_all(&j, talk_note, &e) < 0 ||
        journal_list(&j, 0, 0, &v, &n, &e) < 0)
        return talk_fail(e, w.json);
    if (!words_has(&w, "all") && undo_here(v, n, &dev, &ino, NULL) < 0) {
        ops_free(v, n);
        v = NULL;
        n = 0;
    } else if (ino) {
        ops_free(v, n);
        v = NULL;
        if (journal_list(&j, dev, ino, &v, &n, &e) < 0)
            return talk_fail(e, w.json);
    }
    standings_make(v, n, &s);
    if (w.json)
        print_json(v, n, &s);
    else if (n)
        print_rows(v, n, &s);
    else
        talk_note("nothing was promoted into this project yet");
    ops_free(v, n);
    return 0;
}

int recover_main(const char *data, int argc, char **argv)
{
    CLEANUP(journal_close_p) struct journal j = { .fd = -1 };
    struct err *e = NULL;
    if (journal_open(data, &j, &e) < 0 || recover_all(&j, talk_note, &e) < 0)
        return talk_fail(e, false);
    return 0;
}
