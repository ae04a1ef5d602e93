/* Requests of one connection: what is told about each, how many bytes belong to it, what is refused; fed
 * whole, in pieces of every small size, and with bodies moved unseen. */
#include "tests/unit/check.h"

#include "base/str.h"
#include "runtime/gateway/http.h"

#define LIT(s) (s), sizeof(s) - 1
#define H "Host: example.com\r\n"
#define GET "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\n" H
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define NEXT "GET /2 HTTP/1.1\r\nHost: two.example\r\n\r\n"

static const char *const words[] = {
    [HTTP_BAD_BYTE] = "byte", [HTTP_BAD_REQUEST] = "request", [HTTP_BAD_OLD] = "old",
    [HTTP_BAD_H2] = "h2",     [HTTP_BAD_VERSION] = "version", [HTTP_BAD_HEADER] = "header",
    [HTTP_BAD_HOST] = "host", [HTTP_BAD_LENGTH] = "length",   [HTTP_BAD_CHUNK] = "chunk",
    [HTTP_BAD_LONG] = "long", [HTTP_BAD_TUNNEL] = "tunnel",
};

/* "[METHOD host:port flags]" for a head, "+N" for a body, then "." between requests, "~" within one,
 * "!word" where it is bad. */
static const struct {
    const char *in;
    size_t n;
    const char *want;
} rows[] = {
    { LIT(""), "." },
    { LIT("G"), "~" },
    { LIT(GET H "\r"), "~" },
    { LIT(GET H "\r\n"), "[GET example.com]." },
    { LIT(GET H "\r\n" NEXT), "[GET example.com][GET two.example]." },
    { LIT("GET /a?b=c%20d\"<>\\^ HTTP/1.1\r\n" H "\r\n"), "[GET example.com]." },
    { LIT("GET //evil.example/ HTTP/1.1\r\n" H "\r\n"), "[GET example.com]." },
    { LIT("GET /\xc3\xa4 HTTP/1.1\r\n" H "A: \xc3\xa4\t.\r\n\r\n"), "[GET example.com]." },
    { LIT("VERSION-CONTROL /x HTTP/1.1\r\n" H "\r\n"), "[VERSION-CONTROL example.com]." },
    { LIT("OPTIONS * HTTP/1.1\r\n" H "\r\n"), "[OPTIONS example.com]." },
    { LIT(GET "hOsT:\t Example.COM. \t\r\n\r\n"), "[GET example.com]." },
    { LIT(GET "A:b\r\nHost:a\r\nEmpty:\r\n\r\n"), "[GET a]." },
    { LIT(GET "Host: example.com:8080\r\n\r\n"), "[GET example.com:8080]." },
    { LIT(GET "Host: a:65535\r\nX-09azAZ_!#$%&'*+.^`|~: x\r\n\r\n"), "[GET a:65535]." },
    { LIT(GET "Host: a123456789b123456789c123456789d123456789.test\r\n\r\n"),
      "[GET a123456789b123456789c123456789d123456789.test]." },
    { LIT(GET "Host: a123456789b123456789c123456789d123456789x.test\r\n\r\n"),
      "[GET a123456789b123456789c123456789d123456789x.test]." },
    { LIT(GET "Host: 192.0.2.7\r\n\r\n"), "[GET =192.0.2.7]." },
    { LIT(GET "Host: 192.0.2.7:81\r\n\r\n"), "[GET =192.0.2.7:81]." },
    { LIT(GET "Host: [2001:db8::1]\r\n\r\n"), "[GET =2001:db8::1]." },
    { LIT(GET "Host: [2001:DB8::1]:8080\r\n\r\n"), "[GET =2001:db8::1:8080]." },
    { LIT(GET "Host: [::ffff:127.0.0.1]\r\n\r\n"), "[GET =127.0.0.1]." },
    { LIT("GET / HTTP/1.0\r\n\r\n"), "[GET  old]." },
    { LIT("GET / HTTP/1.0\r\n" H "\r\n" NEXT), "[GET example.com old][GET two.example]." },
    { LIT("GET http://example.com/ HTTP/1.0\r\n\r\n"), "[GET example.com old]." },
    /* the whole address in the target */
    { LIT("GET http://example.com/x HTTP/1.1\r\n" H "\r\n"), "[GET example.com]." },
    { LIT("GET HTTP://EXAMPLE.com.?q HTTP/1.1\r\n" H "\r\n"), "[GET example.com]." },
    { LIT("GET https://example.com HTTP/1.1\r\n" H "\r\n"), "[GET example.com]." },
    { LIT("GET http://example.com:80/ HTTP/1.1\r\n" H "\r\n"), "[GET example.com]." },
    { LIT("GET http://example.com/ HTTP/1.1\r\nHost: example.com:80\r\n\r\n"),
      "[GET example.com:80]." },
    { LIT("GET https://example.com:80/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://example.com:81/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://evil.example/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.2\r\n\r\n"), "!host" },
    { LIT("GET http://192.0.2.1/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://example.com/ HTTP/1.1\r\n\r\n"), "!host" },
    { LIT("GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n"), "[GET =192.0.2.1]." },
    { LIT("GET http:/// HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http:// HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://example.com@evil.example/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://x@example.com/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://example.com\\@evil.example/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("GET http://example.com#@evil.example/ HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET ftp://example.com/ HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET http:/example.com/ HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET example.com/ HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET * HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("OPTIONS *x HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET /#x HTTP/1.1\r\n" H "\r\n"), "!request" },
    /* tunnels */
    { LIT("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"),
      "[CONNECT example.com:443 connect]~" },
    { LIT("CONNECT example.com:443 HTTP/1.1\r\n" H "\r\n"), "[CONNECT example.com:443 connect]~" },
    { LIT("CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n"),
      "[CONNECT =2001:db8::1:443 connect old]~" },
    { LIT("CONNECT example.com:443 HTTP/1.1\r\n" H "\r\nx"),
      "[CONNECT example.com:443 connect]!tunnel" },
    { LIT("CONNECT example.com:443 HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx"),
      "[CONNECT example.com:443 connect]!tunnel" },
    { LIT("CONNECT evil.example:443 HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("CONNECT example.com HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("CONNECT example.com:443/ HTTP/1.1\r\n" H "\r\n"), "!host" },
    { LIT("CONNECT /x HTTP/1.1\r\n" H "\r\n"), "!host" },
    /* upgrades */
    { LIT(GET H "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n"),
      "[GET example.com websocket]." },
    { LIT(GET H "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"), "[GET example.com upgrade]." },
    { LIT(GET H "Upgrade: websocket, h2c\r\n\r\n"), "[GET example.com upgrade]." },
    { LIT(GET H "Upgrade: websocket\r\nUpgrade: websocket\r\n\r\n"), "[GET example.com upgrade]." },
    { LIT(GET H "Upgrade: h2c\r\nUpgrade: websocket\r\n\r\n"), "[GET example.com upgrade]." },
    { LIT(GET H "Upgrade:\r\n\r\n"), "[GET example.com upgrade]." },
    /* hosts */
    { LIT(GET "\r\n"), "!host" },
    { LIT(GET H H "\r\n"), "!host" },
    { LIT(GET H "host: evil.example\r\n\r\n"), "!host" },
    { LIT(GET "Host:\r\n\r\n"), "!host" },
    { LIT(GET "Host: \r\n" H "\r\n"), "!host" },
    { LIT(GET "Host: a b\r\n\r\n"), "!host" },
    { LIT(GET "Host: a,b\r\n\r\n"), "!host" },
    { LIT(GET "Host: a/b\r\n\r\n"), "!host" },
    { LIT(GET "Host: a@b\r\n\r\n"), "!host" },
    { LIT(GET "Host: a%00.example\r\n\r\n"), "!host" },
    { LIT(GET "Host: a..b\r\n\r\n"), "!host" },
    { LIT(GET "Host: ex\xc3\xa4mple.com\r\n\r\n"), "!host" },
    { LIT(GET "Host: 127.1\r\n\r\n"), "!host" },
    { LIT(GET "Host: 2130706433\r\n\r\n"), "!host" },
    { LIT(GET "Host: 0x7f.0.0.1\r\n\r\n"), "!host" },
    { LIT(GET "Host: 127.0.0.1.\r\n\r\n"), "!host" },
    { LIT(GET "Host: 127.0.0.01\r\n\r\n"), "!host" },
    { LIT(GET "Host: ::1\r\n\r\n"), "!host" },
    { LIT(GET "Host: [::1\r\n\r\n"), "!host" },
    { LIT(GET "Host: []\r\n\r\n"), "!host" },
    { LIT(GET "Host: [127.0.0.1]\r\n\r\n"), "!host" },
    { LIT(GET "Host: [fe80::1%eth0]\r\n\r\n"), "!host" },
    { LIT(GET "Host: [::1]x\r\n\r\n"), "!host" },
    { LIT(GET "Host: [::1]80\r\n\r\n"), "!host" },
    { LIT(GET "Host: a:\r\n\r\n"), "!host" },
    { LIT(GET "Host: a:0\r\n\r\n"), "!host" },
    { LIT(GET "Host: a:080\r\n\r\n"), "!host" },
    { LIT(GET "Host: a:65536\r\n\r\n"), "!host" },
    { LIT(GET "Host: a:+80\r\n\r\n"), "!host" },
    { LIT(GET "Host: a:80:80\r\n\r\n"), "!host" },
    { LIT(GET "Host: :80\r\n\r\n"), "!host" },
    { LIT("GET / HTTP/1.0\r\nHost: a b\r\n\r\n"), "!host" },
    /* request lines */
    { LIT("GET /\r\n"), "!old" },
    { LIT("GET /index.html\r\n\r\n"), "!old" },
    { LIT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "!h2" },
    { LIT("GET / HTTP/2.0\r\n" H "\r\n"), "!version" },
    { LIT("GET / HTTP/1.2\r\n" H "\r\n"), "!version" },
    { LIT("GET / HTTP/1.10\r\n" H "\r\n"), "!version" },
    { LIT("GET / HTTP/1.\r\n" H "\r\n"), "!version" },
    { LIT("GET / http/1.1\r\n" H "\r\n"), "!version" },
    { LIT("GET / HTTP/1.1 \r\n" H "\r\n"), "!request" },
    { LIT("GET / x HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET  / HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET /  HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET\t/ HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET /\tx HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT(" GET / HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("G(T / HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("G\xc3T / HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\n" H "\r\n"), "!request" },
    { LIT("GET\r\n"), "!request" },
    { LIT("GET \r\n"), "!request" },
    { LIT("SSH-2.0-OpenSSH_9.2\r\n"), "!request" },
    { LIT("\r\n" GET H "\r\n"), "!request" },
    { LIT(GET H "\r\n\r\n"), "[GET example.com]!request" },
    /* bytes and lines */
    { LIT("\x16\x03\x01\x02"), "!byte" },
    { LIT("GET / HTTP/1.1\n" H "\r\n"), "!byte" },
    { LIT(GET "Host: example.com\n\r\n"), "!byte" },
    { LIT(GET H "\n"), "!byte" },
    { LIT(GET H "\r\r\n"), "!byte" },
    { LIT(GET H "A: b\rc\r\n\r\n"), "!byte" },
    { LIT(GET H "A: b\r\rc\r\n\r\n"), "!byte" },
    { LIT(GET H "A: b\0c\r\n\r\n"), "!byte" },
    { LIT(GET H "A\0: b\r\n\r\n"), "!byte" },
    { LIT("GET /\0 HTTP/1.1\r\n" H "\r\n"), "!byte" },
    { LIT(GET H "A: \x1b[m\r\n\r\n"), "!byte" },
    { LIT(GET H "A: \x7f\r\n\r\n"), "!byte" },
    { LIT(GET H "A: b\v\r\n\r\n"), "!byte" },
    { LIT(GET H " folded\r\n\r\n"), "!header" },
    { LIT(GET H "\tfolded: x\r\n\r\n"), "!header" },
    { LIT(GET " Host: example.com\r\n\r\n"), "!header" },
    { LIT(GET "Host : example.com\r\n\r\n"), "!header" },
    { LIT(GET H "A\t: b\r\n\r\n"), "!header" },
    { LIT(GET H ": b\r\n\r\n"), "!header" },
    { LIT(GET H "no colon\r\n\r\n"), "!header" },
    { LIT(GET H "A(b): c\r\n\r\n"), "!header" },
    { LIT(GET H "\xc3\xa4: c\r\n\r\n"), "!header" },
    { LIT(GET H "Connection: close, Host\r\n\r\n"), "!header" },
    { LIT(GET H "Connection: content-length\r\n\r\n"), "!header" },
    { LIT(GET H "Connection:\tTransfer_Encoding \r\n\r\n"), "!header" },
    { LIT(GET H "Connection: ,, close,\r\n\r\n"), "[GET example.com]." },
    /* bodies by length */
    { LIT(POST "Content-Length: 0\r\n\r\n" NEXT), "[POST example.com][GET two.example]." },
    { LIT(POST "content-length:5 \r\n\r\nhello" NEXT), "[POST example.com]+5[GET two.example]." },
    { LIT(POST "Content-Length: 50\r\n\r\nGET / HTTP/1.1\r\n\r\n"), "[POST example.com]+18~" },
    { LIT(POST "Content-Length: 5\r\n\r\n\0\r\n\x7f\xff" NEXT),
      "[POST example.com]+5[GET two.example]." },
    { LIT(POST "Content-Length: 4\r\n\r\nhello" NEXT), "[POST example.com]+4[oGET two.example]." },
    { LIT(POST "Content-Length: 999999999999999999\r\n\r\nx"), "[POST example.com]+1~" },
    { LIT(GET H "Content-Length: 3\r\n\r\nabc" NEXT), "[GET example.com]+3[GET two.example]." },
    { LIT("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"), "[POST  old]+3." },
    { LIT(POST "Content-Length: 9999999999999999999\r\n\r\nx"), "!length" },
    { LIT(POST "Content-Length: 18446744073709551621\r\n\r\nx"), "!length" },
    { LIT(POST "Content-Length:\r\n\r\n"), "!length" },
    { LIT(POST "Content-Length: +5\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: -5\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 05\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 0x5\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 5 5\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 5, 5\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 5.0\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), "!length" },
    { LIT(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), "!length" },
    { LIT(POST "Content_Length: 5\r\n\r\nhello"), "!length" },
    { LIT(POST "Transfer_Encoding: chunked\r\n\r\n"), "!length" },
    { LIT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: chunked, chunked\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: identity\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: xchunked\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding: \"chunked\"\r\n\r\n"), "!length" },
    { LIT(POST "Transfer-Encoding:\r\n\r\n"), "!length" },
    { LIT("POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n"), "!length" },
    /* bodies in chunks */
    { LIT(CHUNKED "0\r\n\r\n" NEXT), "[POST example.com]+5[GET two.example]." },
    { LIT(CHUNKED "5\r\nhello\r\n0\r\n\r\n" NEXT), "[POST example.com]+15[GET two.example]." },
    { LIT(CHUNKED "5\r\n0\r\n\r\n\r\n0\r\n\r\n" NEXT), "[POST example.com]+15[GET two.example]." },
    { LIT(CHUNKED "a\r\n0123456789\r\nA;x=\"y\"; z\r\n0123456789\r\n000;e\r\n\r\n"),
      "[POST example.com]+48." },
    { LIT(CHUNKED "3\r\nabc\r\n0\r\nTrailer: x\r\nOther:\r\n\r\n" NEXT),
      "[POST example.com]+33[GET two.example]." },
    { LIT(POST "Transfer-Encoding: \tChunked \r\n\r\n0\r\n\r\n"), "[POST example.com]+5." },
    { LIT(CHUNKED "9\r\n123456789\r\n0\r\n\r\n"), "[POST example.com]+19." },
    { LIT(CHUNKED "7fffffff\r\nx"), "[POST example.com]+11~" },
    { LIT(CHUNKED "80000000\r\nx"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "100000005\r\nhello\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED ";x\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "5 \r\nhello\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED " 5\r\nhello\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "0x5\r\nhello\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "-5\r\nhello\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "5g\r\nhello\r\n"), "[POST example.com]!chunk" },
    { LIT(CHUNKED "5\nhello\r\n"), "[POST example.com]!byte" },
    { LIT(CHUNKED "5\rhello\r\n"), "[POST example.com]!byte" },
    { LIT(CHUNKED "5;a\nb\r\nhello\r\n"), "[POST example.com]!byte" },
    { LIT(CHUNKED "5\r\nhellox\r\n"), "[POST example.com]+8!chunk" },
    { LIT(CHUNKED "5\r\nhello\n0\r\n"), "[POST example.com]+8!chunk" },
    { LIT(CHUNKED "5\r\nhello\rx0\r\n"), "[POST example.com]+8!byte" },
    { LIT(CHUNKED "5\r\nhello0\r\n\r\n"), "[POST example.com]+8!chunk" },
    { LIT(CHUNKED "0\r\nGET / HTTP/1.1\r\n\r\n"), "[POST example.com]+3!chunk" },
    { LIT(CHUNKED "0\r\n folded\r\n\r\n"), "[POST example.com]+3!chunk" },
    { LIT(CHUNKED "0\r\nHost: evil.example\r\n\r\n"), "[POST example.com]+3!chunk" },
    { LIT(CHUNKED "0\r\nContent_Length: 5\r\n\r\n"), "[POST example.com]+3!chunk" },
    { LIT(CHUNKED "0\r\nTransfer-Encoding: x\r\n\r\n"), "[POST example.com]+3!chunk" },
    { LIT(CHUNKED "0\r\nA: b\n\r\n"), "[POST example.com]+3!byte" },
    { LIT(CHUNKED "0\r\n\r"), "[POST example.com]+3~" },
};

static void tell_head(const struct http_head *h, struct str *out)
{
    char addr[INET6_ADDRSTRLEN];

    str_addf(out, "[%s ", h->method);
    if (h->literal) {
        addr_text(&h->addr, addr);
        str_addf(out, "=%s", addr);
    }
    str_add(out, h->name);
    if (h->port)
        str_addf(out, ":%u", h->port);
    str_add(out, h->connect ? " connect" : "");
    str_add(out, h->old ? " old" : "");
    str_add(out, h->upgrade == HTTP_UPGRADE_WEBSOCKET ? " websocket"
                 : h->upgrade                         ? " upgrade"
                                                      : "");
    str_add(out, "]");
}

/* Feeds `step` bytes more at a time; `unseen`: bodies go past the checker where it allows that. */
static void trace(const char *p, size_t n, size_t step, bool unseen, struct str *out)
{
    struct http h;
    size_t at = 0, have = 0, body = 0, used;

    http_init(&h);
    for (;;) {
        AUTOFREE char *copy = mem_dup(p + at, have - at); /* exact, for the address sanitizer */
        enum http_verdict v = http_next(&h, copy, have - at, &used);

        if (v == HTTP_BODY)
            body += used;
        else if (body && (v != HTTP_MORE || have == n)) {
            str_addf(out, "+%zu", body);
            body = 0;
        }
        at += used;
        if (v == HTTP_HEAD)
            tell_head(&h.head, out);
        CHECK((v == HTTP_HEAD || v == HTTP_BODY) == (used > 0), "verdict %d, %zu bytes", v, used);
        if (unseen && at == have && http_through(&h)) {
            used = n - have < http_through(&h) ? n - have : (size_t)http_through(&h);
            if (used)
                http_passed(&h, used);
            at = have += used;
            body += used;
        }
        if (v == HTTP_BAD) {
            str_addf(out, "!%s", words[h.bad]);
            CHECK(http_next(&h, p, n, &used) == HTTP_BAD && !used, "bad no longer");
            return;
        }
        if (v == HTTP_MORE && have == n)
            break;
        if (v == HTTP_MORE)
            have = n - have < step ? n : have + step;
    }
    if (body)
        str_addf(out, "+%zu", body);
    str_add(out, http_idle(&h) ? "." : "~");
}

static void test_rows(void)
{
    static const size_t steps[] = { 100000, 1, 2, 3, 5, 7, 16, 64 };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t k = 0; k < 2 * ARRAY_LEN(steps); k++) {
            AUTOSTR struct str got = STR_INIT;

            trace(rows[i].in, rows[i].n, steps[k / 2], k % 2, &got);
            CHECK(str_eq(got.p, rows[i].want), "row %zu, by %zu%s, '%s': got '%s', want '%s'", i,
                  steps[k / 2], k % 2 ? ", unseen" : "", rows[i].in, got.p, rows[i].want);
        }
}

/* How much may go past the checker, and when. */
static void test_through(void)
{
    static const char in[] = CHUNKED "5\r\nhello\r\n0\r\n\r\n" POST "Content-Length: 7\r\n\r\n";
    size_t at = sizeof CHUNKED - 1, n = sizeof in - 1, used;
    struct http h;

    http_init(&h);
    CHECK(http_next(&h, in, n, &used) == HTTP_HEAD && used == at, "%zu", used);
    CHECK(http_through(&h) == 0, "before a chunk");
    CHECK(http_next(&h, in + at, 4, &used) == HTTP_BODY && used == 4, "%zu", used);
    CHECK(http_through(&h) == 4, "within a chunk");
    http_passed(&h, 3);
    CHECK(http_through(&h) == 1 && !http_idle(&h), "within a chunk");
    http_passed(&h, 1);
    CHECK(http_through(&h) == 0 && !http_idle(&h), "behind a chunk");
    at += 8;
    CHECK(http_next(&h, in + at, n - at, &used) == HTTP_BODY && used == 7, "%zu", used);
    CHECK(http_idle(&h), "between requests");
    at += used;
    CHECK(http_next(&h, in + at, n - at, &used) == HTTP_HEAD && used == n - at, "%zu", used);
    CHECK(http_through(&h) == 7, "a body");
    http_passed(&h, 7);
    CHECK(http_through(&h) == 0 && http_idle(&h), "behind a body");
}

static void expect(const char *what, const struct str *s, const char *want)
{
    for (size_t step = 1; step < 100000; step *= 37) {
        AUTOSTR struct str got = STR_INIT;

        trace(s->p, s->len, step, false, &got);
        CHECK(str_eq(got.p, want), "%s by %zu: got '%s', want '%s'", what, step, got.p, want);
    }
}

static void fill(struct str *s, const char *start, size_t n, const char *end)
{
    str_add(s, start);
    while (s->len < n - strlen(end))
        str_addc(s, 'x');
    str_add(s, end);
}

/* At each limit, and one past it. */
static void test_limits(void)
{
    for (size_t more = 0; more < 2; more++) {
        AUTOSTR struct str s = STR_INIT;

        fill(&s, GET H "A: ", HTTP_HEAD_MAX + more, "\r\n\r\n");
        expect("head", &s, more ? "!long" : "[GET example.com].");
        str_reset(&s);
        fill(&s, "GET /", HTTP_HEAD_MAX + more, "");
        expect("endless line", &s, "!long");
        str_reset(&s);
        str_add(&s, GET H);
        for (size_t i = 1; i < HTTP_HEADERS_MAX + more; i++)
            str_add(&s, "A: b\r\n");
        str_add(&s, "\r\n");
        expect("headers", &s, more ? "!long" : "[GET example.com].");
        str_reset(&s);
        fill(&s, CHUNKED "1;", sizeof CHUNKED - 1 + HTTP_CHUNK_LINE_MAX + more, "\r\n");
        expect("chunk line", &s, more ? "[POST example.com]!long" : "[POST example.com]+256~");
        str_reset(&s);
        fill(&s, CHUNKED "0\r\nA: ", sizeof CHUNKED + 2 + HTTP_TRAILER_MAX + more, "\r\n\r\n");
        expect("trailer", &s, more ? "[POST example.com]+3!long" : "[POST example.com]+8195.");
        str_reset(&s);
        str_add(&s, CHUNKED "0\r\n");
        for (size_t i = 0; i < HTTP_HEADERS_MAX + more; i++)
            str_add(&s, "A: b\r\n");
        str_add(&s, "\r\n");
        expect("trailers", &s, more ? "[POST example.com]+3!long" : "[POST example.com]+605.");
    }
}

static const struct {
    const char *in;
    int want;
} switched[] = {
    { "", -1 },
    { "HTTP/1.", -1 },
    { "HTTP/1.1 101", -1 },
    { "HTTP/1.1 101 Switching Protocols\r\n", 1 },
    { "HTTP/1.1 101\r\n", 1 },
    { "HTTP/1.1 1010 x", 0 },
    { "HTTP/1.1 200 OK\r\n", 0 },
    { "HTTP/1.1 100 Continue\r\n", 0 },
    { "HTTP/1.0 101 x", 0 },
    { "SSH", 0 },
};

int main(void)
{
    test_rows();
    test_through();
    test_limits();
    for (size_t i = 0; i < ARRAY_LEN(switched); i++)
        CHECK(http_switched(switched[i].in, strlen(switched[i].in)) == switched[i].want, "'%s'",
              switched[i].in);
    for (int i = 0; i <= HTTP_BAD_TUNNEL; i++)
        CHECK(*http_why((enum http_bad)i), "no words for %d", i);
    return check_done();
}
