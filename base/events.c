#include "base/events.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { EVENTS_MAX = 8 << 20 };

void events_write(const char *data, const char *type, const struct event_of *of,
                  const struct jsonw *more)
{
    AUTOFREE char *path = path_join(data, "events.jsonl"), *old = str_printf("%s.1", path);
    AUTOCLOSE int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    AUTOJSONW struct jsonw w = { 0 };
    struct stat st;

    if (fd < 0)
        return;
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
    (void)!write(fd, w.out.p, w.out.len);
    if (fstat(fd, &st) == 0 && st.st_size > EVENTS_MAX)
        (void)rename(path, old);
}
