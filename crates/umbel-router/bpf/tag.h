/* The tag by which a router knows its own turning points. */
#pragma once

#include "numbers.h"

/* SipHash-2-4 of what a turning point stands for: see turning_point.rs. */
APART u64 tag_of(const struct settings *settings, const struct link *link, u64 epoch)
{
	if (!settings || !link)
		return 0;
	const u32 *source = link->source.word, *group = link->group.word;
	u64 big = swap64(epoch);
	u64 words[6] = {
#if V6
		source[0] | (u64)source[1] << 32,
		source[2] | (u64)source[3] << 32,
		group[0] | (u64)group[1] << 32,
		group[2] | (u64)group[3] << 32,
#else
		/* As addresses of IPv6. */
		0,
		0xFFFF0000 | (u64)source[0] << 32,
		0,
		0xFFFF0000 | (u64)group[0] << 32,
#endif
		link->port | (u64)swap32(link->interface) << 16 | big << 48,
		big >> 16 | 46ull << 56,
	};
	u64 a = settings->key[0] ^ 0x736f6d6570736575, b = settings->key[1] ^ 0x646f72616e646f6d;
	u64 c = settings->key[0] ^ 0x6c7967656e657261, d = settings->key[1] ^ 0x7465646279746573;
#define ROTATED(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define ROUND()                     \
	do {                        \
		a += b;             \
		c += d;             \
		b = ROTATED(b, 13) ^ a; \
		d = ROTATED(d, 16) ^ c; \
		a = ROTATED(a, 32); \
		c += b;             \
		a += d;             \
		b = ROTATED(b, 17) ^ c; \
		d = ROTATED(d, 21) ^ a; \
		c = ROTATED(c, 32); \
	} while (0)
#pragma unroll
	for (int i = 0; i < 6; i++) {
		d ^= words[i];
		ROUND();
		ROUND();
		a ^= words[i];
	}
	c ^= 0xFF;
	ROUND();
	ROUND();
	ROUND();
	ROUND();
	return a ^ b ^ c ^ d;
}
