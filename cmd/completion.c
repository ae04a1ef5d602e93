/* cmd/completion.c - `petri completion bash|zsh|fish`: scripts made from the descriptors.
 *
 * A word of an option or operand comes from its `complete` field: file, dir, command, user, petri, key (of the
 * configuration), one of `lists`, or the words themselves ("a|b|c").
 */
#include <string.h>

#include "cmd/cmd.h"
#include "runtime/config/keys.h"

/* What petri itself is asked for at the moment: a function each. */
static const struct {
    const char *kind, *also, *command;
} lists[] = {
    { "image", "host ", "petri image ls 2>/dev/null | awk 'NR > 1 { print $1 \":\" $2 }'" },
    { "sandbox", "", "petri ls 2>/dev/null | awk 'NR > 1 { print $2 == \"-\" ? $1 : $2 }'" },
    { "snapshot", "", "petri snapshot ls 2>/dev/null | awk '{ print $1 }'" },
    { "job", "", "petri jobs 2>/dev/null | awk 'NR > 1 { print $1 }'" },
};

static bool is_list(const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (!strcmp(kind, lists[i].kind))
            return true;
    return false;
}

/* `before` ALIAS `between` NAME `after`, for each other name of a command. */
static void aliases(FILE *out, const char *before, const char *between, const char *after)
{
    for (size_t i = 0; commands[i]; i++)
        for (const char *p = commands[i]->hidden ? NULL : commands[i]->aliases; p && *p;) {
            size_t n = strcspn(p, " ");
            fprintf(out, "%s%.*s%s%s%s", before, (int)n, p, between, commands[i]->name, after);
            p += n + (p[n] == ' ');
        }
}

/* Text inside single quotes; `also` are characters that get a backslash as well. */
static void quoted(FILE *out, const char *text, const char *also)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr(also, *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

/* "a|b" as "a b" */
static void words(FILE *out, const char *list)
{
    for (size_t i = 0; i < n_config_keys && !strcmp(list, "key"); i++)
        fprintf(out, "%s%s", i ? " " : "", config_keys[i].name);
    if (!strcmp(list, "key"))
        return;
    for (; *list; list++)
        fputc(*list == '|' ? ' ' : *list, out);
}

/* Calls fn for each visible command and sub-command with the words that lead to it. */
static void each(void (*fn)(FILE *out, const struct cmd *c, const char *path), FILE *out)
{
    char path[64];
    for (size_t i = 0; commands[i]; i++) {
        const struct cmd *c = commands[i];
        if (c->hidden)
            continue;
        fn(out, c, c->name);
        for (size_t j = 0; c->subs && c->subs[j]; j++)
            if (!c->subs[j]->hidden)
                fn(out, c->subs[j], cmd_path(c->subs[j], path));
    }
}

static void names(FILE *out, const struct cmd *const *list)
{
    for (size_t i = 0, n = 0; list[i]; i++)
        if (!list[i]->hidden)
            fprintf(out, "%s%s", n++ ? " " : "", list[i]->name);
}

static const char *kind(const char *complete)
{
    return complete ? complete : "none";
}

/* --- bash ------------------------------------------------------------------------------------ */

static void bash_cmd(FILE *out, const struct cmd *c, const char *path)
{
    fprintf(out, "    '%s') opts='--help", path);
    for (size_t i = 0; i < c->n_opts; i++) {
        fprintf(out, " --%s", c->opts[i].name);
        if (c->opts[i].letter)
            fprintf(out, " -%c", c->opts[i].letter);
    }
    fputs("'", out);
    if (c->subs) {
        fputs(" operand='", out);
        names(out, c->subs);
    } else {
        fputs(" operand='", out);
        words(out, kind(c->complete));
    }
    fputs("'\n", out);
    for (size_t i = 0; i < c->n_opts; i++) {
        const struct opt *o = &c->opts[i];
        if (!o->arg)
            continue;
        fprintf(out, "        values[--%s]='", o->name);
        words(out, kind(o->complete));
        if (o->letter) {
            fprintf(out, "' values[-%c]='", o->letter);
            words(out, kind(o->complete));
        }
        fputs("'\n", out);
    }
    fputs("        ;;\n", out);
}

static const char bash_head[] =
    "# bash completion for petri\n"
    "_petri_words() {\n"
    "    case $1 in\n"
    "    none) ;;\n"
    "    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$2\") ;;\n"
    "    dir) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$2\") ;;\n"
    "    user) mapfile -t COMPREPLY < <(compgen -u -- \"$2\") ;;\n"
    "    command)\n"
    "        compopt -o filenames\n"
    "        if ((operands)); then mapfile -t COMPREPLY < <(compgen -f -- \"$2\")\n"
    "        else mapfile -t COMPREPLY < <(compgen -c -- \"$2\"); fi ;;\n"
    "    image|sandbox|snapshot|job) mapfile -t COMPREPLY < <(compgen -W \"$(_petri_list_$1)\" -- "
    "\"$2\") ;;\n"
    "    petri) mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$2\") ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$2\") ;;\n"
    "    esac\n"
    "}\n";
static const char bash_main[] =
    "_petri() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local path=${COMP_WORDS[1]} at=2 operands=0 over=0 i word opts= operand=none\n"
    "    local -A values=()\n";
static const char bash_mid[] =
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD < 2)); then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$cur\")\n"
    "        return\n"
    "    fi\n"
    "    case $path in\n";
static const char bash_late[] =
    "    esac\n"
    "    [[ $cur = '=' ]] && cur= && prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    [[ $prev = '=' ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    if [[ \" $parents \" = *\" $path \"* && $COMP_CWORD -gt 2 ]]; then\n"
    "        path+=\" ${COMP_WORDS[2]}\" at=3\n"
    "    fi\n"
    "    case $path in\n";
static const char bash_tail[] =
    "    esac\n"
    "    for ((i = at; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((over)); then ((operands++))\n"
    "        elif [[ $word = -- ]]; then over=1\n"
    "        elif [[ -n ${values[$word]+x} ]]; then\n"
    "            if [[ ${COMP_WORDS[i + 1]-} = '=' ]]; then ((i += 2)); else ((i++)); fi\n"
    "            if ((i >= COMP_CWORD)); then _petri_words \"${values[$prev]-none}\" \"$cur\"; "
    "return; fi\n"
    "        elif [[ $word != -* ]]; then ((operands++)); over=1\n"
    "        fi\n"
    "    done\n"
    "    if ((!over)) && [[ $cur = -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$opts\" -- \"$cur\")\n"
    "        return\n"
    "    fi\n"
    "    _petri_words \"$operand\" \"$cur\"\n"
    "}\n"
    "complete -F _petri petri\n";

static void bash(FILE *out)
{
    fputs(bash_head, out);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        fprintf(out, "_petri_list_%s() { %s%s; }\n", lists[i].kind,
                *lists[i].also ? "echo host; " : "", lists[i].command);
    fputs(bash_main, out);
    fputs("    local commands='", out);
    names(out, commands);
    fputs("' parents='", out);
    for (size_t i = 0; commands[i]; i++)
        if (commands[i]->subs && !commands[i]->hidden)
            fprintf(out, "%s ", commands[i]->name);
    fputs("'\n", out);
    fputs(bash_mid, out);
    aliases(out, "    ", ") path=", " ;;\n");
    fputs(bash_late, out);
    each(bash_cmd, out);
    fputs(bash_tail, out);
}

/* --- zsh ------------------------------------------------------------------------------------- */

static void zsh_action(FILE *out, const char *complete)
{
    const char *k = kind(complete);
    if (!strcmp(k, "file"))
        fputs("_files", out);
    else if (!strcmp(k, "dir"))
        fputs("_files -/", out);
    else if (!strcmp(k, "user"))
        fputs("_users", out);
    else if (is_list(k))
        fprintf(out, "_petri_list_%s", k);
    else if (!strcmp(k, "petri"))
        fputs("_petri_commands", out);
    else if (!strcmp(k, "none"))
        fputs(" ", out);
    else {
        fputc('(', out);
        words(out, k);
        fputc(')', out);
    }
}

static void zsh_list(FILE *out, const struct cmd *const *list)
{
    for (size_t i = 0; list[i]; i++) {
        if (list[i]->hidden)
            continue;
        fprintf(out, " '%s:", list[i]->name);
        quoted(out, list[i]->summary, ":\\");
        fputc('\'', out);
    }
}

static void zsh_name(FILE *out, const char *path)
{
    fputs("_petri_do_", out);
    for (; *path; path++)
        fputc(*path == ' ' || *path == '-' ? '_' : *path, out);
}

static void zsh_cmd(FILE *out, const struct cmd *c, const char *path)
{
    zsh_name(out, path);
    if (c->subs) {
        fputs("() {\n    local -a subs=(", out);
        zsh_list(out, c->subs);
        fputs(" )\n    if ((CURRENT == 2)); then _describe -t commands command subs; return; fi\n"
              "    shift words; ((CURRENT--))\n    local f=",
              out);
        zsh_name(out, path);
        fputs("_$words[1]\n    (($+functions[$f])) && $f\n}\n", out);
        return;
    }
    fputs("() {\n    _arguments -s -S '--help[this text]'", out);
    for (size_t i = 0; i < c->n_opts; i++) {
        const struct opt *o = &c->opts[i];
        fputs(" \\\n        ", out);
        if (o->letter)
            fprintf(out, "'*'{-%c%s,--%s%s}'[", o->letter, o->arg ? "+" : "", o->name,
                    o->arg ? "=" : "");
        else
            fprintf(out, "'*--%s%s[", o->name, o->arg ? "=" : "");
        quoted(out, o->help, "[]:\\");
        fputc(']', out);
        if (o->arg) {
            fputc(':', out);
            quoted(out, o->arg, "[]:\\");
            fputc(':', out);
            zsh_action(out, o->complete);
        }
        fputc('\'', out);
    }
    if (c->complete && !strcmp(c->complete, "command")) {
        fputs(" \\\n        '(-)1:command:_command_names -e' '*::arguments:_normal'", out);
    } else if (c->complete) {
        fputs(" \\\n        '*:argument:", out);
        zsh_action(out, c->complete);
        fputc('\'', out);
    }
    fputs("\n}\n", out);
}

static void zsh(FILE *out)
{
    fputs("#compdef petri\n", out);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        fprintf(out, "_petri_list_%s() { compadd -- %s${(f)\"$(%s)\"} }\n", lists[i].kind,
                lists[i].also, lists[i].command);
    fputs("_petri_commands() {\n    local -a cmds=(", out);
    zsh_list(out, commands);
    fputs(" )\n    _describe -t commands 'petri command' cmds\n}\n", out);
    each(zsh_cmd, out);
    fputs("_petri() {\n"
          "    if ((CURRENT == 2)); then _petri_commands; compadd -- --help --version; return; fi\n"
          "    shift words; ((CURRENT--))\n"
          "    case $words[1] in\n",
          out);
    aliases(out, "    ", ") words[1]=", " ;;\n");
    fputs("    esac\n"
          "    local f=_petri_do_${words[1]//-/_}\n"
          "    (($+functions[$f])) && $f\n"
          "}\n"
          "if [[ $zsh_eval_context[-1] = loadautofunc ]]; then _petri \"$@\"; else compdef _petri "
          "petri; fi\n",
          out);
}

/* --- fish ------------------------------------------------------------------------------------ */

static void fish_words(FILE *out, const char *complete)
{
    const char *k = kind(complete);
    if (!strcmp(k, "file"))
        fputs(" -F", out);
    else if (!strcmp(k, "dir"))
        fputs(" -f -a '(__fish_complete_directories)'", out);
    else if (!strcmp(k, "user"))
        fputs(" -f -a '(__fish_complete_users)'", out);
    else if (is_list(k))
        fprintf(out, " -f -a '(__petri_list_%s)'", k);
    else if (!strcmp(k, "command"))
        fputs(" -a '(__petri_command)'", out);
    else if (!strcmp(k, "petri")) {
        fputs(" -f -a '", out);
        names(out, commands);
        fputc('\'', out);
    } else if (!strcmp(k, "none")) {
        fputs(" -f", out);
    } else {
        fputs(" -f -a '", out);
        words(out, k);
        fputc('\'', out);
    }
}

static void fish_cmd(FILE *out, const struct cmd *c, const char *path)
{
    for (size_t i = 0; c->subs && c->subs[i]; i++) {
        if (c->subs[i]->hidden)
            continue;
        fprintf(out, "complete -c petri -n '__petri_is %s; and __petri_count 2' -f -a %s -d '",
                path, c->subs[i]->name);
        quoted(out, c->subs[i]->summary, "");
        fputs("'\n", out);
    }
    if (c->complete) {
        fprintf(out, "complete -c petri -n '__petri_is %s'", path);
        fish_words(out, c->complete);
        fputc('\n', out);
    } else if (!c->subs) {
        fprintf(out, "complete -c petri -n '__petri_is %s' -f\n", path);
    }
    fprintf(out, "complete -c petri -n '__petri_is %s' -l help -d 'this text'\n", path);
    for (size_t i = 0; i < c->n_opts; i++) {
        const struct opt *o = &c->opts[i];
        fprintf(out, "complete -c petri -n '__petri_is %s' -l %s", path, o->name);
        if (o->letter)
            fprintf(out, " -s %c", o->letter);
        if (o->arg) {
            fputs(" -r", out);
            fish_words(out, o->complete);
        }
        fputs(" -d '", out);
        quoted(out, o->help, "");
        fputs("'\n", out);
    }
}

static void fish(FILE *out)
{
    fputs("# fish completion for petri\n"
          "function __petri_is\n"
          "    set -l w (commandline -opc)\n"
          "    test (count $w) -gt (count $argv); or return 1\n"
          "    switch $w[2]\n",
          out);
    aliases(out, "        case ", "\n            set w[2] ", "\n");
    fputs("    end\n"
          "    for i in (seq (count $argv))\n"
          "        set -l next (math $i + 1)\n"
          "        test \"$w[$next]\" = \"$argv[$i]\"; or return 1\n"
          "    end\n"
          "end\n"
          "function __petri_count\n"
          "    test (count (commandline -opc)) -eq $argv[1]\n"
          "end\n"
          "function __petri_command\n"
          "    __fish_complete_subcommand --fcs-skip=2\n"
          "end\n"
          "complete -c petri -n '__petri_count 1' -f -l version -d 'print the version'\n"
          "complete -c petri -n '__petri_count 1' -f -l help -d 'what petri can do'\n",
          out);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        fprintf(out, "function __petri_list_%s\n%s    %s\nend\n", lists[i].kind,
                *lists[i].also ? "    echo host\n" : "", lists[i].command);
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->hidden)
            continue;
        fprintf(out, "complete -c petri -n '__petri_count 1' -f -a %s -d '", commands[i]->name);
        quoted(out, commands[i]->summary, "");
        fputs("'\n", out);
    }
    each(fish_cmd, out);
}

/* --- the command ----------------------------------------------------------------------------- */

static int completion_run(const struct cmd *c, int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };
    const char *value;
    bool bad;

    while (cmd_next_opt(c, argc, argv, &value, &bad))
        ;
    if (bad)
        return c->usage_exit;
    if (argc - optind != 1)
        return cmd_usage(c, "name one shell: bash, zsh or fish");
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (!strcmp(argv[optind], shells[i].name)) {
            shells[i].write(stdout);
            return 0;
        }
    return cmd_usage(c, "no completion for '%s'; there is bash, zsh and fish", argv[optind]);
}

const struct cmd cmd_completion = {
    .name = "completion",
    .summary = "print the completion script for a shell",
    .usage = "bash|zsh|fish",
    .about =
        "The script knows every command and option of this petri. Packages install it; by hand:",
    .examples = "source <(petri completion bash)\tbash, in ~/.bashrc\n"
                "source <(petri completion zsh)\tzsh, in ~/.zshrc after compinit\n"
                "petri completion fish | source\tfish, in config.fish",
    .complete = "bash|zsh|fish",
    .usage_exit = 2,
    .run = completion_run,
};
