/* cmd/man.c - man(7) pages from the descriptors, so that they can't tell another story than --help.
 * Owns: petri.1 and petri-NAME.1 in the directory it is given; each is replaced as a whole.
 */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "cmd/cmd.h"

/* Text as roff: no escape, no request at the start of a line, dashes that can be copied. */
static void roff(FILE *out, const char *text, size_t n, bool at_start)
{
    for (size_t i = 0; i < n; i++) {
        if (at_start && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
        at_start = text[i] == '\n';
    }
}

static void roff_line(FILE *out, const char *text)
{
    roff(out, text, strlen(text), true);
    fputc('\n', out);
}

/* Paragraphs; lines that start with a space stay as they are. */
static void roff_text(FILE *out, const char *text)
{
    bool verbatim = false;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t n = strcspn(text, "\n");
        if ((*text == ' ') != verbatim && n) {
            verbatim = !verbatim;
            fputs(verbatim ? ".PP\n.nf\n" : ".fi\n.PP\n", out);
        }
        if (!n) {
            if (!verbatim)
                fputs(".PP\n", out);
            continue;
        }
        roff(out, text, n, true);
        fputc('\n', out);
    }
    if (verbatim)
        fputs(".fi\n", out);
}

static void roff_opts(FILE *out, const struct cmd *c)
{
    for (size_t i = 0; i < c->n_opts; i++) {
        const struct opt *o = &c->opts[i];
        fputs(".TP\n", out);
        if (o->letter)
            fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
        fputs("\\fB\\-\\-", out);
        roff(out, o->name, strlen(o->name), false);
        fputs("\\fR", out);
        if (o->arg) {
            fputs(" \\fI", out);
            roff(out, o->arg, strlen(o->arg), false);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        fputc(toupper((unsigned char)o->help[0]), out);
        roff(out, o->help + 1, strlen(o->help + 1), false);
        fputs(".\n", out);
    }
    fputs(".TP\n\\fB\\-\\-help\\fR\nPrint a short form of this page.\n", out);
}

static void synopsis(FILE *out, const struct cmd *c)
{
    char path[64];
    fprintf(out, "\\fBpetri %s\\fR ", cmd_path(c, path));
    roff_line(out, c->usage ? c->usage : "");
}

static void sub_pages(FILE *out, const struct cmd *c)
{
    for (size_t i = 0; c->subs && c->subs[i]; i++) {
        const struct cmd *s = c->subs[i];
        if (s->hidden)
            continue;
        fputs(".SS ", out);
        synopsis(out, s);
        fputc(toupper((unsigned char)s->summary[0]), out);
        roff(out, s->summary + 1, strlen(s->summary + 1), false);
        fputs(".\n", out);
        if (s->about) {
            fputs(".PP\n", out);
            roff_text(out, s->about);
        }
        roff_opts(out, s);
    }
}

static void roff_examples(FILE *out, const char *text)
{
    fputs(".SH EXAMPLES\n", out);
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = strcspn(p, "\t\n");
        fputs(".TP\n\\fB", out);
        roff(out, p, n, false);
        fputs("\\fR\n", out);
        if (p[n] == '\t') {
            fputs("\\&", out);
            roff(out, p + n + 1, strcspn(p + n + 1, "\n"), false);
        } else {
            fputs("\\&", out);
        }
        fputc('\n', out);
    }
}

static const char exit_plain[] =
    ".SH EXIT STATUS\n.TP\n\\fB0\\fR\nIt worked.\n.TP\n\\fB1\\fR\nIt failed; stderr says why.\n"
    ".TP\n\\fB2\\fR\nThe command line was wrong.\n";
static const char exit_runner[] =
    ".SH EXIT STATUS\nThe status of the command that was run, or:\n"
    ".TP\n\\fB124\\fR\nIt was ended by \\-\\-timeout.\n"
    ".TP\n\\fB125\\fR\npetri itself failed or the command line was wrong; nothing was run.\n"
    ".TP\n\\fB126\\fR\nThe command was found but can't be executed.\n"
    ".TP\n\\fB127\\fR\nThe command was not found.\n"
    ".TP\n\\fB128+\\fIn\\fR\nThe command was killed by signal \\fIn\\fR.\n";

static void man_petri(FILE *out)
{
    fputs(".TH PETRI 1 \"\" \"petri " PETRI_VERSION "\" \"petri manual\"\n"
          ".SH NAME\npetri \\- copies of your project, in milliseconds, to break without harm\n"
          ".SH SYNOPSIS\n\\fBpetri\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR...]\n.br\n"
          "\\fBpetri \\-\\-help\\fR | \\fB\\-\\-version\\fR\n"
          ".SH DESCRIPTION\npetri runs commands in an isolated copy of a project. Whatever happens "
          "there, the project itself and the machine stay as they were.\n"
          ".SH COMMANDS\n",
          out);
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->hidden)
            continue;
        fprintf(out, ".TP\n\\fBpetri\\-%s\\fR(1)\n", commands[i]->name);
        roff_line(out, commands[i]->summary);
    }
    fputs(".SH FILES\n"
          ".TP\n\\fI/var/lib/petri\\fR, \\fI/run/petri\\fR\n"
          "Images, layers and sandboxes of root; sockets and locks of running ones.\n"
          ".TP\n\\fI$XDG_DATA_HOME/petri\\fR, \\fI$XDG_RUNTIME_DIR/petri\\fR\n"
          "The same for other users; without those variables \\fI~/.local/share/petri\\fR and "
          "\\fI/tmp/petri\\-UID\\fR.\n"
          ".SH ENVIRONMENT\n"
          ".TP\n\\fBPETRI_HOME\\fR\nWhere petri keeps everything, instead of its usual places.\n"
          ".TP\n\\fBNO_COLOR\\fR\nNot empty: no colour, even on a terminal.\n",
          out);
    fputs(exit_plain, out);
}

void help_man(const struct cmd *c, FILE *out)
{
    if (!c) {
        man_petri(out);
        return;
    }
    fputs(".TH PETRI\\-", out);
    for (const char *p = c->name; *p; p++)
        fputc(toupper((unsigned char)*p), out);
    fputs(" 1 \"\" \"petri " PETRI_VERSION "\" \"petri manual\"\n", out);
    fprintf(out, ".SH NAME\npetri\\-%s \\- ", c->name);
    roff(out, c->summary, strlen(c->summary), false);
    fputs("\n.SH SYNOPSIS\n", out);
    synopsis(out, c);
    if (c->about) {
        fputs(".SH DESCRIPTION\n", out);
        roff_text(out, c->about);
    }
    if (c->subs)
        fputs(".SH COMMANDS\n", out);
    sub_pages(out, c);
    fputs(".SH OPTIONS\n", out);
    roff_opts(out, c);
    if (c->examples)
        roff_examples(out, c->examples);
    fputs(c->usage_exit == 125 ? exit_runner : exit_plain, out);
    fputs(".SH SEE ALSO\n\\fBpetri\\fR(1)\n", out);
}

static int write_page(int dir, const struct cmd *c, struct err **e)
{
    AUTOFREE char *text = NULL;
    char name[80] = "petri.1";
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return err_sys(e, "open_memstream");
    help_man(c, f);
    fclose(f);
    if (c)
        snprintf(name, sizeof name, "petri-%s.1", c->name);
    if (fs_write_atomic(dir, name, text, len, 0644, e) < 0)
        return err_wrap(e, "man page '%s'", name);
    return 0;
}

int help_man_all(const char *dir, struct err **e)
{
    AUTOCLOSE int fd = -EBADF;
    int rc = fs_mkdirs(dir, 0755, e);
    if (rc < 0)
        return rc;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open '%s'", dir);
    rc = write_page(fd, NULL, e);
    for (size_t i = 0; rc >= 0 && commands[i]; i++)
        if (!commands[i]->hidden)
            rc = write_page(fd, commands[i], e);
    return rc < 0 ? err_wrap(e, "write man pages to '%s'", dir) : 0;
}
