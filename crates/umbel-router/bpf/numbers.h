/* Numbers in network order, and what has the verifier follow them. */
#pragma once

#include "layout.h"

/* Has the compiler keep a number where it is, so that the verifier sees what it is compared with. */
#define PINNED(x) asm volatile("" : "+r"(x))

INLINE void count(u32 counter)
{
	u64 *value = bpf_map_lookup_elem(&COUNTS, &counter);
	if (value)
		*value += 1;
}

INLINE u16 swap16(u16 value)
{
	return __builtin_bswap16(value);
}

INLINE u32 swap32(u32 value)
{
	return __builtin_bswap32(value);
}

INLINE u64 swap64(u64 value)
{
	return __builtin_bswap64(value);
}

/* Reads numbers in network order from anywhere. */
INLINE u16 net16(const u8 *at)
{
	return at[0] | at[1] << 8;
}

INLINE u32 net32(const u8 *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (u32)at[3] << 24;
}

INLINE u64 net64(const u8 *at)
{
	return net32(at) | (u64)net32(at + 4) << 32;
}

INLINE u16 folded(u32 sum)
{
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (sum & 0xFFFF) + (sum >> 16);
}

INLINE struct address address_at(const u8 *at)
{
	struct address address = {};
	for (int i = 0; i < WORDS; i++)
		address.word[i] = net32(at + 4 * i);
	return address;
}

INLINE int same(const struct address *one, const struct address *other)
{
	u32 difference = 0;
	for (int i = 0; i < WORDS; i++)
		difference |= one->word[i] ^ other->word[i];
	return difference == 0;
}

INLINE int is_none(const struct address *address)
{
	const struct address none = {};
	return same(address, &none);
}

INLINE int is_multicast(const struct address *address)
{
	u32 word = address->word[0];
	return V6 ? (word & 0xFF) == 0xFF : (word & 0xF0) == 0xE0;
}

/* Returns whether an address can be that of a host elsewhere. */
INLINE int is_host(const struct address *address)
{
	const u32 *word = address->word;
#if V6
	/* ::, ::1 and those of IPv4; those of a link alone. */
	if (!(word[0] | word[1]) && (!word[2] || word[2] == 0xFFFF0000))
		return 0;
	return !is_multicast(address) && (word[0] & 0xC0FF) != 0x80FE;
#else
	return word[0] != 0 && (word[0] & 0xFF) != 127 && (word[0] & 0xFF) < 0xE0;
#endif
}

/* A function that the verifier looks at once, for all calls. */
#define APART __attribute__((noinline))
