/* runtime/gateway/hello.h - whom a TLS client says it wants to talk to.
 *
 * Reads a ClientHello from the first bytes of a connection, over several records where it must. All
 * lengths are checked against each other; anything a server could read in another way than we do is bad.
 * Owns:  nothing; no allocation, no descriptor.
 * Uses:  runtime/network/policy.h for the canonical name.
 * Crash: nothing to leave behind.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { HELLO_MAX = 16384 }; /* bytes looked at: a hello that needs more is bad */

enum hello {
    HELLO_MORE,    /* no verdict yet: call again with these bytes and more */
    HELLO_NAME,    /* a server name that can be read */
    HELLO_NO_NAME, /* a sound hello without one */
    HELLO_ECH, /* has an encrypted inner hello, or the look of one; the name, if any, is the outer one */
    HELLO_BAD, /* no TLS, malformed, too long, a name twice, an address for a name */
};

/* `p` is all that came since the connection opened; what follows the hello is not looked at. A verdict
 * other than HELLO_MORE does not change with more bytes. `ret_name` is canonical; empty where there is none. */
enum hello hello_read(const uint8_t *p, size_t n, char ret_name[256]);
