/* cmd/started.c - what petri start says of the sandbox that runs now. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/life.h"
#include "runtime/sandbox/control.h"

/* "2 cpus 2G 256 pids   network limited", of what is enforced; and what is not. */
static void print_box(const struct json *live)
{
    const struct json *l = json_get(live, "limits"), *cpus = json_get(l, "cpus");
    const struct json *net = json_get(live, "network");
    uint64_t memory = 0, pids = 0;
    char size[24];

    if (cpus && !str_eq(json_str(l, "cpus_enforced"), "none"))
        printf("   %g cpus", strtod(cpus->string, NULL));
    if (json_u64(l, "memory", &memory) && !str_eq(json_str(l, "memory_enforced"), "none")) {
        format_size(memory, size);
        printf("   %s", size);
    }
    if (json_u64(l, "pids", &pids) && !str_eq(json_str(l, "pids_enforced"), "none"))
        printf("   %llu pids", (unsigned long long)pids);
    if (json_str(net, "policy"))
        printf("   network %s", json_str(net, "policy"));
}

static void note_loose(const struct json *live)
{
    static const char *const names[] = { "memory", "cpus", "pids" };
    AUTOSTR struct str loose = STR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTOFREE char *key = str_printf("%s_enforced", names[i]);
        if (str_eq(json_str(json_get(live, "limits"), key), "none"))
            str_addf(&loose, "%s%s", loose.len ? ", " : "", names[i]);
    }
    if (loose.len)
        cmd_note("not enforced for this user on this machine: %s (petri doctor says why)", loose.p);
}

static void note_started(const struct started *s, const struct json *live)
{
    if (!s->was_running)
        note_loose(live);
    if (s->ids_note)
        cmd_note("%s", s->ids_note);
    for (size_t i = 0; i < s->missing.n; i++) {
        AUTOSTR struct str path = STR_INIT;
        str_add_escaped(&path, s->missing.v[i], strlen(s->missing.v[i]));
        cmd_note("not in the copy: %s (a mount that is no ordinary file system)", path.p);
    }
}

static void print_json(const struct life *f, const struct started *s, uint64_t us,
                       const struct json *live)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_str(&w, "id", s->id);
    jw_str(&w, "name", s->name);
    jw_str(&w, "state", "running");
    jw_bool(&w, "created", s->made);
    jw_bool(&w, "was_running", s->was_running);
    jw_double(&w, "ms", (double)us / 1000);
    jw_strv(&w, "missing", &s->missing);
    jw_strv(&w, "notes", &f->notes);
    if (json_get(live, "limits"))
        jw_json(&w, "limits", json_get(live, "limits"));
    jw_end_obj(&w);
    puts(w.out.p);
}

void life_print_started(const struct life *f, const struct started *s, uint64_t us,
                        const char *word)
{
    const char *name = s->name ? s->name : s->id;
    AUTOJSON struct json *live = NULL;

    if (f->json || (!f->quiet && !s->was_running))
        (void)sandbox_ask(&f->paths, s->id, "{\"op\":\"status\"}", &live, NULL);
    if (!f->quiet && !f->json && s->was_running) {
        printf("%s is running\n", name);
    } else if (!f->quiet && !f->json) {
        printf("%s %s (%.0f ms)", name, word, (double)us / 1000);
        print_box(live);
        printf("   next: petri shell | petri exec -- CMD\n");
    }
    if (!f->quiet)
        note_started(s, live);
    if (f->json)
        print_json(f, s, us, live);
}
