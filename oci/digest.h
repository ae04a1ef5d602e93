/* oci/digest.h - digests as OCI writes them; only sha256 is known here.
 * A digest becomes a file name, so nothing but "sha256:" and 64 lower-case hex digits passes.
 */
#pragma once
#include <stdbool.h>

enum { DIGEST_HEX = 64 };

bool digest_valid(const char *digest); /* NULL is not valid */
/* The hex digits of a valid digest. */
const char *digest_hex(const char *digest);
