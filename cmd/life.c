#include "cmd/life.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t life_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void life_free_p(struct life *f)
{
    options_free_p(&f->o);
    paths_free_p(&f->paths);
    strv_free_p(&f->notes);
}

int life_parse(struct life *f, const struct cmd *c, int argc, char **argv)
{
    const struct {
        const char *name;
        const char **word;
        bool *flag;
    } table[] = {
        { "json", NULL, &f->json },     { "quiet", NULL, &f->quiet },
        { "force", NULL, &f->force },   { "follow", NULL, &f->follow },
        { "all", NULL, &f->all },       { "message", &f->message, NULL },
        { "count", &f->count, NULL },   { "signal", &f->signal, NULL },
        { "lines", &f->number, NULL },  { "sandbox", &f->sandbox, NULL },
        { "agent", &f->agent, NULL },   { "profile", &f->profile, NULL },
        { "aside", NULL, &f->o.aside },
    };
    const struct opt *o;
    const char *value = NULL;
    bool bad = false;

    /* flags may come after words, which then move to the front */
    f->words = argv + 1;
    for (;;) {
        o = cmd_next_opt(c, argc, argv, &value, &bad);
        bool last = bad || optind >= argc || (optind > 1 && strcmp(argv[optind - 1], "--") == 0);
        if (!o && last)
            break;
        if (!o) {
            f->words[f->n_words++] = argv[optind++];
            continue;
        }
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
            if (strcmp(table[i].name, o->name) != 0)
                continue;
            if (table[i].word)
                *table[i].word = value;
            if (table[i].flag)
                *table[i].flag = true;
        }
        (void)options_set(&f->o, o->name, value);
    }
    while (!bad && optind < argc)
        f->words[f->n_words++] = argv[optind++];
    return bad ? -1 : 0;
}
