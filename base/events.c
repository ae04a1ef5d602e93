#include "base/events.h"

#include "base/fs.h"

enum { EVENTS_MAX = 8 << 20 };

void events_write(const char *data, const char *type, const struct event_of *of,
                  const struct jsonw *more)
{
    AUTOFREE char *path = path_join(data, "events.jsonl");
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_time(&w, "time");
    jw_str(&w, "event", type);
    jw_str(&w, "id", of->id);
    jw_str(&w, "name", of->name);
    jw_str(&w, "project", of->project);
    if (more && more->out.len)
        str_addf(&w.out, ",%s", more->out.p);
    jw_end_obj(&w);
    str_addc(&w.out, '\n');
    fs_log(path, w.out.p, w.out.len, EVENTS_MAX);
}
