/* runtime/change/hunks.c - petri promote -p: file by file, hunk by hunk, as git add -p asks.
 *
 * Owns:  DATA/sandboxes/ID/review.json: answers, by a digest of path and hunk, so that a review can be
 *        gone on with and what was decided once stays decided while it is the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/hash.h"
#include "runtime/change/promote.h"
#include "runtime/change/text.h"

enum { MAX_TEXT = 16 << 20 };

struct answers {
    char *path;
    struct strv keys; /* "y HEX" or "n HEX" */
};

struct asking {
    struct promotion *m;
    struct answers *a;
    bool quit, fresh;
    size_t earlier;
};

/* --- answers --------------------------------------------------------------------------------------------- */

static void answers_load(struct answers *a)
{
    AUTOFREE char *text = NULL;
    AUTOJSON struct json *j = NULL;
    size_t n;

    if (fs_read(AT_FDCWD, a->path, 16 << 20, &text, &n, NULL) < 0 ||
        json_parse(text, n, &j, NULL) < 0)
        return;
    const struct json *list = json_arr(j, "answers");
    for (size_t i = 0; list && i < list->n; i++)
        if (list->items[i]->type == JSON_STRING && strlen(list->items[i]->string) == 66)
            strv_add(&a->keys, list->items[i]->string);
}

static void answers_save(const struct answers *a)
{
    AUTOJSONW struct jsonw w = { 0 };
    jw_obj(&w, NULL);
    jw_int(&w, "schema", 1);
    jw_strv(&w, "answers", &a->keys);
    jw_end_obj(&w);
    /* a review that can't be remembered is still a review */
    (void)fs_write_atomic(AT_FDCWD, a->path, w.out.p, w.out.len, 0600, NULL);
}

static char answer_of(const struct answers *a, const char *key)
{
    for (size_t i = a->keys.n; i-- > 0;)
        if (!strcmp(a->keys.v[i] + 2, key))
            return a->keys.v[i][0];
    return 0;
}

static void answer_set(struct answers *a, const char *key, char c)
{
    for (size_t i = 0; i < a->keys.n; i++)
        if (!strcmp(a->keys.v[i] + 2, key)) {
            a->keys.v[i][0] = c;
            answers_save(a);
            return;
        }
    strv_addf(&a->keys, "%c %s", c, key);
    answers_save(a);
}

static void key_of(const char *path, const char *text, size_t n, char ret[65])
{
    CLEANUP(hash_free_p) struct hash *h = hash_new();
    hash_add(h, path, strlen(path) + 1);
    hash_add(h, text, n);
    hash_hex(h, ret);
}

/* --- asking ---------------------------------------------------------------------------------------------- */

static void show(const char *text, size_t n)
{
    AUTOSTR struct str s = STR_INIT;
    while (n) { /* lines stay lines; all else is made harmless */
        size_t len = 0;
        while (len < n && text[len] != '\n')
            len++;
        str_add_escaped(&s, text, len);
        str_addc(&s, '\n');
        len += len < n;
        text += len;
        n -= len;
    }
    fwrite(s.p ? s.p : "", 1, s.len, stderr);
}

static char ask(const char *what, const char *letters)
{
    char line[64];
    fprintf(stderr, "%s [%s,?]? ", what, letters);
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin))
        return 'q';
    return line[0];
}

static void help(bool hunk)
{
    fputs(hunk ? "y - take this hunk\nn - do not take it\n" : "y - take it\nn - do not take it\n",
          stderr);
    fputs("q - stop here; what was answered is remembered, nothing is applied\n", stderr);
    if (hunk)
        fputs("a - take this hunk and all later ones of the file\n"
              "d - take neither this hunk nor any later one of the file\n"
              "s - split it into smaller ones\n"
              "j - leave it undecided, go to the next\nk - go back to the one before\n",
              stderr);
}

/* Whole files: what has no lines to choose from. */
static void ask_file(struct asking *q, size_t i)
{
    const struct change *ch = &q->m->s.c.v[i];
    AUTOFREE char *about = str_printf("%s %o %o %s", change_kind_name(ch->kind), ch->old_mode,
                                      ch->new_mode, ch->new_digest);
    AUTOSTR struct str name = STR_INIT;
    char key[65];

    key_of(ch->path, about, strlen(about), key);
    char c = q->fresh ? 0 : answer_of(q->a, key);
    q->earlier += c != 0;
    str_add_escaped(&name, ch->path, strlen(ch->path));
    if (!c)
        fprintf(stderr, "%s: %s%s\n", name.p, change_kind_name(ch->kind),
                ch->flags & CHANGE_BINARY ? ", binary" : "");
    while (c != 'y' && c != 'n') {
        c = ask("take this file", "y,n,q");
        if (c == 'q') {
            q->quit = true;
            return;
        }
        if (c == 'y' || c == 'n')
            answer_set(q->a, key, c);
        else
            help(false);
    }
    if (c == 'n')
        picks_set(&q->m->p, i, PICK_SKIPPED, NULL);
}

/* --- hunks ----------------------------------------------------------------------------------------------- */

struct file {
    const char *path;
    struct text_diff d;
    char *given; /* y, n or 0 per hunk */
};

static void hunk_text(const struct file *f, size_t h, struct str *out)
{
    text_format_hunk(&f->d, &f->d.hunks[h], out);
}

/* Line numbers move; the lines themselves are what was decided about. */
static void hunk_key(const struct file *f, size_t h, char ret[65])
{
    AUTOSTR struct str s = STR_INIT;
    hunk_text(f, h, &s);
    const char *nl = s.p ? strchr(s.p, '\n') : NULL;
    const char *from = nl ? nl + 1 : "";
    key_of(f->path, from, strlen(from), ret);
}

static void decide(struct asking *q, struct file *f, size_t h, char c)
{
    char key[65];
    f->given[h] = c;
    hunk_key(f, h, key);
    answer_set(q->a, key, c);
}

static size_t next_open(const struct file *f, size_t from)
{
    for (size_t k = 0; k < f->d.n_hunks; k++) {
        size_t h = (from + k) % f->d.n_hunks;
        if (!f->given[h])
            return h;
    }
    return f->d.n_hunks;
}

/* 's': the same texts without context around changes fall into more hunks. */
static bool split(struct file *f)
{
    struct text_diff d = { 0 };
    if (text_diff(f->d.old, f->d.old_len, f->d.new, f->d.new_len, 0, &d, NULL) < 0 ||
        d.n_hunks <= f->d.n_hunks) {
        text_diff_free_p(&d);
        return false;
    }
    text_diff_free_p(&f->d);
    f->d = d;
    free(f->given);
    f->given = mem_zalloc(d.n_hunks + 1);
    return true;
}

static void known_answers(struct asking *q, struct file *f)
{
    for (size_t h = 0; h < f->d.n_hunks && !q->fresh; h++) {
        char key[65];
        hunk_key(f, h, key);
        f->given[h] = answer_of(q->a, key);
        q->earlier += f->given[h] != 0;
    }
}

static void ask_hunks(struct asking *q, struct file *f)
{
    size_t h = next_open(f, 0);

    while (h < f->d.n_hunks && !q->quit) {
        AUTOSTR struct str text = STR_INIT, name = STR_INIT;
        hunk_text(f, h, &text);
        str_add_escaped(&name, f->path, strlen(f->path));
        fprintf(stderr, "--- %s\n", name.p);
        show(text.p, text.len);
        AUTOFREE char *what = str_printf("(%zu/%zu) take this hunk", h + 1, f->d.n_hunks);
        char c = ask(what, "y,n,q,a,d,s,j,k");
        if (c == 'y' || c == 'n')
            decide(q, f, h, c);
        else if (c == 'a' || c == 'd')
            for (size_t k = h; k < f->d.n_hunks; k++)
                decide(q, f, k, c == 'a' ? 'y' : 'n');
        else if (c == 'q')
            q->quit = true;
        else if (c == 's' && !split(f))
            fputs("it can't be split\n", stderr);
        else if (c == 'k')
            h = h ? h - 1 : 0;
        else if (c != 's' && c != 'j')
            help(true);
        if (c == 'k')
            f->given[h] = 0;
        else
            h = c == 's' ? next_open(f, 0) : next_open(f, c == 'j' ? h + 1 : h);
    }
}

static int take_hunks(struct asking *q, size_t i, const struct file *f, struct err **e)
{
    AUTOFREE bool *take = mem_zalloc((f->d.n_hunks + 1) * sizeof *take);
    AUTOSTR struct str out = STR_INIT;
    size_t n = 0;

    for (size_t h = 0; h < f->d.n_hunks; h++)
        n += take[h] = f->given[h] == 'y';
    if (n == f->d.n_hunks)
        return 0;
    if (n == 0) {
        picks_set(&q->m->p, i, PICK_SKIPPED, NULL);
        return 0;
    }
    text_apply(&f->d, take, &out);
    return picks_content(&q->m->p, i, out.p ? out.p : "", out.len, e);
}

/* Both sides as text; false where it has to be chosen as a whole. */
static bool read_sides(struct promotion *m, size_t i, char **ret_old, size_t *ret_on,
                       char **ret_new, size_t *ret_nn)
{
    const struct change *ch = &m->s.c.v[i];
    AUTOFREE char *link = NULL;
    AUTOCLOSE int fd = -1;

    if (ch->kind != CHANGE_MODIFIED || !S_ISREG(ch->new_mode) || !S_ISREG(ch->old_mode) ||
        (ch->flags & CHANGE_BINARY) || ch->new_size > MAX_TEXT || ch->old_size > MAX_TEXT)
        return false;
    if (drift_host(&m->p.drift, ch->path, ret_old, ret_on, NULL) < 0)
        return false;
    int content = m->p.v[i].content;
    if (content >= 0) /* merged */
        return drift_read_fd(content, ret_new, ret_nn, NULL) == 0;
    return source_content(&m->s, i, &fd, &link, NULL) == 0 && fd >= 0 &&
           drift_read_fd(fd, ret_new, ret_nn, NULL) == 0 &&
           source_same(&m->s, i, *ret_new, *ret_nn, NULL) == 0;
}

static int ask_change(struct asking *q, size_t i, struct err **e)
{
    AUTOFREE char *old = NULL, *new = NULL;
    struct file f = { .path = q->m->s.c.v[i].path };
    size_t on = 0, nn = 0;
    int rc;

    if (!read_sides(q->m, i, &old, &on, &new, &nn)) {
        ask_file(q, i);
        return 0;
    }
    if ((rc = text_diff(old, on, new, nn, 3, &f.d, e)) < 0)
        return rc;
    f.given = mem_zalloc(f.d.n_hunks + 1);
    known_answers(q, &f);
    ask_hunks(q, &f);
    if (!q->quit)
        rc = take_hunks(q, i, &f, e);
    free(f.given);
    text_diff_free_p(&f.d);
    return rc;
}

int hunks_choose(struct promotion *m, bool *ret_quit, struct err **e)
{
    struct answers a = { .path = str_printf("%s/sandboxes/%s/review.json", m->data, m->r.id) };
    struct asking q = { .m = m, .a = &a, .fresh = words_has(&m->w, "again") };
    int rc = 0;

    answers_load(&a);
    for (size_t i = 0; i < m->p.n && rc == 0 && !q.quit; i++)
        if (m->p.v[i].what == PICK_TAKE)
            rc = ask_change(&q, i, e);
    if (q.earlier && !q.quit)
        talk_notef("%zu answers of earlier were taken over (-p --again asks anew)", q.earlier);
    *ret_quit = q.quit;
    free(a.path);
    strv_free_p(&a.keys);
    return rc;
}
