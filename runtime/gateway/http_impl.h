/* runtime/gateway/http_impl.h - between http.c, which finds lines and bodies, and http_head.c, which reads
 * the lines of a head. Each returns HTTP_FINE or what is wrong. */
#pragma once
#include "runtime/gateway/http.h"

/* `p` is the start of the head; the line is p[h->line] to `len` bytes on, without its end. */
enum http_bad http_request_line(struct http *h, const char *p, size_t len);
enum http_bad http_header_line(struct http *h, const char *p, size_t len);
/* A line of a trailer: like a header, but of no meaning for host or framing. */
enum http_bad http_trailer_line(struct http *h, const char *p, size_t len);
/* All lines were read: makes h->head complete. */
enum http_bad http_head_end(struct http *h, const char *p);
