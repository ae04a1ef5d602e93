/* runtime/network/gate_line.c - is this a line that our own gateway would write?
 *
 * The gateway reads what hostile code sends; should it ever be taken over, its lines still end in a log, on a
 * terminal, and in a command that somebody copies (`petri net allow ...`). So a line is taken as it must be, or not at all.
 */
#include <string.h>

#include "runtime/network/gate.h"

enum { WORDS_MAX = 320 };

static bool one_of(const char *text, const char *a, const char *b, const char *c)
{
    return str_eq(text, a) || str_eq(text, b) || (c && str_eq(text, c));
}

static bool is_name(const char *text)
{
    char name[NET_NAME_SIZE];
    return net_name(text, strlen(text), name) == 0 && strcmp(text, name) == 0;
}

static bool is_rule(const char *text)
{
    CLEANUP(net_rule_free_p) struct net_rule r = { 0 };
    return net_rule_parse("", text, &r, NULL) == 0 && strcmp(text, r.text) == 0;
}

static bool is_plain(const char *text)
{
    size_t n = 0;
    while (text[n] >= ' ' && text[n] <= '~')
        n++;
    return !text[n] && n <= WORDS_MAX;
}

static bool text_fine(const char *key, const char *text)
{
    struct net_addr a;

    if (strcmp(key, "type") == 0)
        return str_eq(text, "log");
    if (strcmp(key, "verdict") == 0)
        return one_of(text, "allow", "deny", NULL);
    if (strcmp(key, "proto") == 0)
        return one_of(text, "tcp", "udp", "dns");
    if (strcmp(key, "name") == 0)
        return is_name(text);
    if (strcmp(key, "addr") == 0)
        return addr_parse(text, &a) == 0;
    if (strcmp(key, "allow") == 0)
        return is_rule(text);
    return (strcmp(key, "rule") == 0 || strcmp(key, "why") == 0) && is_plain(text);
}

static bool number_fine(const struct json *line, const char *key)
{
    uint64_t n;

    if (strcmp(key, "port") == 0)
        return json_u64(line, key, &n) && n <= UINT16_MAX;
    return one_of(key, "in", "out", NULL) && json_u64(line, key, &n);
}

bool gate_line_fine(const struct json *line)
{
    for (size_t i = 0; i < line->n; i++) {
        const struct json *v = line->items[i];
        if (v->type == JSON_STRING ? !text_fine(line->keys[i], v->string)
                                   : !number_fine(line, line->keys[i]))
            return false;
    }
    return json_str(line, "verdict") && json_str(line, "proto") && json_str(line, "rule");
}
