/* Makes multicast TCP segments of one source and group segments of local connections: see
 * umbel-engine/src/smo/delivery.rs, which has the rules.
 *
 * It runs where packets arrive (tc ingress), before the kernel's TCP. It asks the kernel for the
 * connections that it has learnt: so it knows exactly what each has acknowledged and received, and
 * never hands a segment to one that is not there, which the kernel would answer with RST.
 *
 * delivery.bpf.o is made of this file by build.sh. */

#include "kernel.h"

enum { ETHERNET = 14, TCP = 6, TCP_HEADER = 20 };
enum { FIN = 1, SYN = 2, RST = 4, ACK_FLAG = 16 };

/* Offsets in a TCP header. */
enum { DESTINATION_PORT = 2, ACK = 8, CHECKSUM = 16 };

/* The membership option: kind, length, and version. */
enum { END = 0, NOP = 1, EXPERIMENT = 253, MEMBERSHIP_LEN = 7, VERSION = 1 };
/* Kind, length and identifier of an experiment. */
enum { EXPERIMENT_LEN = 4 };

enum { MAX_CONNECTIONS = 4096 };

/* Distance of a segment from the next byte that a connection expects, up to which it can be the
 * source's: more than windows are, which the kernel does not tell. */
enum { NEAR = 1 << 25 };

/* Set when the program is loaded. */
struct settings {
	/* In network order, IPv4 in the first word. */
	u32 source[4], group[4];
	u32 ipv6;
	/* Whether the packet itself may become that of a connection. Not where it is also forwarded. */
	u32 in_place;
	/* The interface's address. */
	u8 mac[6];
	/* The source's port, in host order. */
	u16 port;
};

volatile const struct settings SETTINGS = {};

/* A local connection. */
struct connection {
	u32 local[4];
	/* In host order. */
	u16 port, source_port;
};

/* The port of the channel that serves a connection, and its slot. */
struct place {
	u32 channel, slot;
};

struct {
	FIELD_NUMBER(type, MAP_HASH);
	FIELD_NUMBER(max_entries, MAX_CONNECTIONS);
	FIELD_TYPE(key, struct connection);
	FIELD_TYPE(value, struct place);
} CONNECTIONS SEC(".maps");

/* A connection in the order in which a segment visits them. A walk through the hash map instead
 * would look at each of its buckets. What it says is confirmed there, so that it may be outdated
 * or half written by another processor. */
struct slot {
	/* 0 if it is free, CLAIMED while it is being written. */
	u32 channel;
	struct connection connection;
};

enum { CLAIMED = 1 << 16 };

struct {
	FIELD_NUMBER(type, MAP_ARRAY);
	FIELD_NUMBER(max_entries, MAX_CONNECTIONS);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, struct slot);
} SLOTS SEC(".maps");

/* Number of slots that have ever been in use. The lowest free one is taken. */
struct {
	FIELD_NUMBER(type, MAP_ARRAY);
	FIELD_NUMBER(max_entries, 1);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, u32);
} USED SEC(".maps");

enum counter {
	SEGMENTS,
	DELIVERED,
	NOT_ENROLLED,
	GONE,
	NOT_READY,
	ALREADY_HELD,
	MALFORMED,
	TABLE_FULL,
	OTHER_VERSION,
	/* Not a number, but the version of the last of these. */
	THEIR_VERSION,
	COUNTERS,
};

struct {
	FIELD_NUMBER(type, MAP_ARRAY);
	FIELD_NUMBER(max_entries, COUNTERS);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, u64);
} COUNTS SEC(".maps");

INLINE void count(u32 counter)
{
	u64 *value = bpf_map_lookup_elem(&COUNTS, &counter);
	if (value)
		__sync_fetch_and_add(value, 1);
}

INLINE void note_version(u8 version)
{
	u32 counter = THEIR_VERSION;
	u64 *value = bpf_map_lookup_elem(&COUNTS, &counter);
	if (value)
		*value = version;
	count(OTHER_VERSION);
}

INLINE u16 swap16(u16 value)
{
	return __builtin_bswap16(value);
}

INLINE u32 swap32(u32 value)
{
	return __builtin_bswap32(value);
}

INLINE u32 tcp_offset(void)
{
	return ETHERNET + (SETTINGS.ipv6 ? 40 : 20);
}

INLINE int same_address(const u32 *a, const volatile u32 *b)
{
	if (a[0] != b[0])
		return 0;
	return !SETTINGS.ipv6 || (a[1] == b[1] && a[2] == b[2] && a[3] == b[3]);
}

/* What a segment is changed to, in network order. */
struct rewrite {
	u32 address[4];
	u32 ack;
	u16 port;
};

/* A multicast segment, while connections for it are looked for. */
struct walk {
	struct __sk_buff *skb;
	/* What it says now, and for the last connection that is to get it. */
	struct rewrite now, next;
	u32 has_next, enrolled;
	/* Number after its last byte. */
	u32 end;
	/* In host order. */
	u16 source_port, channel;
};

/* Changes a segment, and its checksums by the difference. */
INLINE void rewrite(struct __sk_buff *skb, const struct rewrite *from, const struct rewrite *to)
{
	u32 tcp = tcp_offset(), checksum = tcp + CHECKSUM;
	struct rewrite old = *from, new = *to;
	if (SETTINGS.ipv6) {
		u64 difference = bpf_csum_diff(old.address, 16, new.address, 16, 0);
		/* Before Linux 6.16 there is no such flag; then it is no mistake without it either, but
		 * for cards that sum up whole packets, where it costs the kernel a sum of its own. */
		if (bpf_l4_csum_replace(skb, checksum, 0, difference, F_PSEUDO_HDR | F_IPV6))
			bpf_l4_csum_replace(skb, checksum, 0, difference, F_PSEUDO_HDR);
		bpf_skb_store_bytes(skb, ETHERNET + 24, new.address, 16, 0);
	} else {
		u32 before = old.address[0], after = new.address[0];
		bpf_l4_csum_replace(skb, checksum, before, after, F_PSEUDO_HDR | 4);
		bpf_l3_csum_replace(skb, ETHERNET + 10, before, after, 4);
		bpf_skb_store_bytes(skb, ETHERNET + 16, &after, 4, 0);
	}
	bpf_l4_csum_replace(skb, checksum, old.port, new.port, 2);
	bpf_skb_store_bytes(skb, tcp + DESTINATION_PORT, &new.port, 2, 0);
	bpf_l4_csum_replace(skb, checksum, old.ack, new.ack, 4);
	bpf_skb_store_bytes(skb, tcp + ACK, &new.ack, 4, 0);
}

/* Hands a copy of the segment to the last connection that is to get it. It comes by this program
 * once more, as a unicast segment that has nothing to learn from. */
INLINE void deliver_copy(struct walk *walk)
{
	struct __sk_buff *skb = walk->skb;
	u8 mac[6];
	for (int i = 0; i < 6; i++)
		mac[i] = SETTINGS.mac[i];
	rewrite(skb, &walk->now, &walk->next);
	walk->now = walk->next;
	bpf_skb_store_bytes(skb, 0, mac, 6, 0);
	bpf_clone_redirect(skb, skb->ifindex, F_INGRESS);
	walk->has_next = 0;
	count(DELIVERED);
}

INLINE struct bpf_sock *find_socket(struct __sk_buff *skb, const struct connection *connection)
{
	struct bpf_sock_tuple tuple = {};
	u16 port = swap16(connection->port), source_port = swap16(connection->source_port);
	if (!SETTINGS.ipv6) {
		tuple.ipv4.saddr = SETTINGS.source[0];
		tuple.ipv4.daddr = connection->local[0];
		tuple.ipv4.sport = source_port;
		tuple.ipv4.dport = port;
		return bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), CURRENT_NETNS, 0);
	}
	for (int i = 0; i < 4; i++) {
		tuple.ipv6.saddr[i] = SETTINGS.source[i];
		tuple.ipv6.daddr[i] = connection->local[i];
	}
	tuple.ipv6.sport = source_port;
	tuple.ipv6.dport = port;
	return bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), CURRENT_NETNS, 0);
}

/* A segment's numbers and flags, in host order. */
struct numbers {
	u32 seq, ack;
	u32 flags;
};

/* Returns whether a segment says what only who sees the connection knows: which of its bytes are
 * under way, and about which the source sends next. Without this, whoever can forge the source's
 * address has any connection served, and needs neither its port nor its numbers to write into it.
 * TCP itself takes more [RFC 5961 5.2]. */
INLINE int is_expected(struct bpf_sock *sk, const struct numbers *numbers)
{
	u32 state = sk->state;
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
	if (!tcp || !(numbers->flags & ACK_FLAG))
		return 0;
	u32 una = tcp->snd_una, acked = numbers->ack - una;
	if (acked > tcp->snd_nxt - una)
		return 0;
	/* The answer to its SYN begins the source's numbers. */
	if (state == TCP_SYN_SENT)
		return (numbers->flags & SYN) && acked > 0;
	if (state != TCP_ESTABLISHED && state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2)
		return 0;
	return numbers->seq - tcp->rcv_nxt + NEAR <= 2 * NEAR;
}

/* Forgets a connection, and frees its slot. */
INLINE void forget(const struct connection *connection)
{
	struct place *place = bpf_map_lookup_elem(&CONNECTIONS, connection);
	if (!place)
		return;
	u32 index = place->slot;
	/* Another processor may have been faster. */
	if (bpf_map_delete_elem(&CONNECTIONS, connection))
		return;
	struct slot *slot = bpf_map_lookup_elem(&SLOTS, &index);
	if (slot)
		slot->channel = 0;
}

/* Looks at a connection for a multicast segment. */
static long visit(u32 index, struct walk *walk)
{
	struct slot *slot = bpf_map_lookup_elem(&SLOTS, &index);
	if (!slot || slot->channel != walk->channel)
		return 0;
	struct connection connection = slot->connection;
	if (connection.source_port != walk->source_port)
		return 0;
	struct place *place = bpf_map_lookup_elem(&CONNECTIONS, &connection);
	if (!place || place->slot != index || place->channel != walk->channel)
		return 0;
	walk->enrolled = 1;
	struct bpf_sock *sk = find_socket(walk->skb, &connection);
	if (!sk) {
		forget(&connection);
		count(GONE);
		return 0;
	}
	u32 state = sk->state, una = 0, next = 0;
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
	if (tcp) {
		una = tcp->snd_una;
		next = tcp->rcv_nxt;
	} else {
		state = 0;
	}
	bpf_sk_release(sk);
	/* A segment with a wrong acknowledgement would be answered with RST before. */
	if (state != TCP_ESTABLISHED && state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2) {
		count(NOT_READY);
		return 0;
	}
	if ((s32)(walk->end - next) <= 0) {
		count(ALREADY_HELD);
		return 0;
	}
	if (walk->has_next)
		deliver_copy(walk);
	for (int i = 0; i < 4; i++)
		walk->next.address[i] = connection.local[i];
	walk->next.port = swap16(connection.port);
	walk->next.ack = swap32(una);
	walk->has_next = 1;
	return 0;
}

/* Returns the port in the membership option, or -1. One of another version says nothing. */
INLINE s32 membership(struct __sk_buff *skb, u32 options, u32 len)
{
	u32 at = 0;
	for (int i = 0; i < 40; i++) {
		u8 head[2] = {}, value[5] = {};
		if (at + 2 > len || bpf_skb_load_bytes(skb, options + at, head, 2))
			return -1;
		if (head[0] == END)
			return -1;
		if (head[0] == NOP) {
			at += 1;
			continue;
		}
		if (head[1] < 2)
			return -1;
		if (head[0] == EXPERIMENT && head[1] >= EXPERIMENT_LEN && at + head[1] <= len) {
			if (bpf_skb_load_bytes(skb, options + at + 2, value, 2))
				return -1;
			if (value[0] == 'U' && value[1] == 'M') {
				if (head[1] == MEMBERSHIP_LEN &&
				    !bpf_skb_load_bytes(skb, options + at + 2, value, 5) &&
				    value[2] == VERSION)
					return value[3] << 8 | value[4];
				if (head[1] > EXPERIMENT_LEN &&
				    bpf_skb_load_bytes(skb, options + at + 2, value, 3))
					return -1;
				note_version(value[2]);
				return -1;
			}
		}
		at += head[1];
	}
	return -1;
}

enum { CHUNK = 64, MAX_CHUNKS = 1024 };

INLINE u16 folded(u32 sum)
{
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (sum & 0xFFFF) + (sum >> 16);
}

/* A segment that is summed up. */
struct summing {
	struct __sk_buff *skb;
	u32 offset, len;
	u32 sum;
};

static long add_chunk(u32 index, struct summing *summing)
{
	u32 chunk[CHUNK / 4] = {}, at = index * CHUNK, rest = summing->len - at;
	if (at >= summing->len)
		return 1;
	if (rest >= CHUNK) {
		if (bpf_skb_load_bytes(summing->skb, summing->offset + at, chunk, CHUNK))
			return 1;
	} else {
		rest &= CHUNK - 1;
		if (rest == 0 || bpf_skb_load_bytes(summing->skb, summing->offset + at, chunk, rest))
			return 1;
	}
	summing->sum = bpf_csum_diff(0, 0, chunk, CHUNK, summing->sum);
	return 0;
}

/* Returns whether the checksum of a segment is right, or still to be completed by a card that it
 * has not passed. Nobody has looked at it yet, and a damaged option must enrol nothing. */
static __attribute__((noinline)) int is_sound(struct __sk_buff *skb, struct connection *connection,
					      u32 len)
{
	u32 offset = tcp_offset(), pseudo[9] = {};
	u16 stored = 0;
	for (int i = 0; i < 4; i++) {
		pseudo[i] = SETTINGS.source[i];
		pseudo[4 + i] = connection->local[i];
	}
	pseudo[8] = swap32(TCP + len);
	u32 sum = bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
	bpf_skb_load_bytes(skb, offset + CHECKSUM, &stored, 2);
	if (stored == folded(sum))
		return 1;
	struct summing summing = { .skb = skb, .offset = offset, .len = len, .sum = sum };
	bpf_loop(MAX_CHUNKS, add_chunk, &summing, 0);
	return folded(summing.sum) == 0xFFFF;
}

/* A search for a free slot. */
struct search {
	struct __sk_buff *skb;
	u32 index, found;
};

static long claim(u32 index, struct search *search)
{
	struct slot *slot = bpf_map_lookup_elem(&SLOTS, &index);
	if (!slot || __sync_val_compare_and_swap(&slot->channel, 0, CLAIMED) != 0)
		return 0;
	search->index = index;
	search->found = 1;
	return 1;
}

/* Frees a slot whose connection is there no more. */
static long clear(u32 index, struct search *search)
{
	struct slot *slot = bpf_map_lookup_elem(&SLOTS, &index);
	if (!slot)
		return 1;
	struct connection connection = slot->connection;
	struct bpf_sock *sk = find_socket(search->skb, &connection);
	if (sk)
		bpf_sk_release(sk);
	else
		forget(&connection);
	return 0;
}

/* Raises the number of slots that have been in use. */
INLINE void use(u32 slots)
{
	u32 zero = 0, *used = bpf_map_lookup_elem(&USED, &zero);
	if (!used)
		return;
	/* Other processors may raise it meanwhile. */
	for (int i = 0; i < 16; i++) {
		u32 before = *used;
		if (before >= slots || __sync_val_compare_and_swap(used, before, slots) == before)
			return;
	}
}

/* Notes in a slot which connection it is for. */
INLINE void note(u32 index, const struct connection *connection, u32 channel)
{
	struct slot *slot = bpf_map_lookup_elem(&SLOTS, &index);
	if (!slot)
		return;
	slot->connection = *connection;
	/* With a barrier. */
	__sync_lock_test_and_set(&slot->channel, channel);
	use(index + 1);
}

/* Returns whether a slot says so. It may not, if two processors wrote it at once. */
INLINE int is_noted(u32 index, u32 channel)
{
	struct slot *slot = bpf_map_lookup_elem(&SLOTS, &index);
	return slot && slot->channel == channel;
}

/* Enrols a connection, or lets another channel serve it. */
INLINE void enrol(struct __sk_buff *skb, const struct connection *connection, u32 channel)
{
	struct place *known = bpf_map_lookup_elem(&CONNECTIONS, connection);
	if (known) {
		known->channel = channel;
		note(known->slot, connection, channel);
		return;
	}
	struct search search = { .skb = skb };
	bpf_loop(MAX_CONNECTIONS, claim, &search, 0);
	if (!search.found) {
		/* Those of a channel that sends no more are not looked at otherwise. */
		bpf_loop(MAX_CONNECTIONS, clear, &search, 0);
		bpf_loop(MAX_CONNECTIONS, claim, &search, 0);
	}
	if (!search.found) {
		count(TABLE_FULL);
		return;
	}
	struct place place = { .channel = channel, .slot = search.index };
	if (bpf_map_update_elem(&CONNECTIONS, connection, &place, NEW)) {
		struct slot *slot = bpf_map_lookup_elem(&SLOTS, &search.index);
		if (slot)
			slot->channel = 0;
		count(TABLE_FULL);
		return;
	}
	note(search.index, connection, channel);
}

/* Learns which channel serves a connection from a unicast segment of the source. */
INLINE void learn(struct __sk_buff *skb, struct connection *connection,
		  const struct numbers *numbers, u32 header, u32 len)
{
	if (header <= TCP_HEADER)
		return;
	s32 port = membership(skb, tcp_offset() + TCP_HEADER, header - TCP_HEADER);
	if (port < 0)
		return;
	struct place *known = bpf_map_lookup_elem(&CONNECTIONS, connection);
	u32 channel = port;
	if (known ? known->channel == channel && is_noted(known->slot, channel) : channel == 0)
		return;
	struct bpf_sock *sk = find_socket(skb, connection);
	if (!sk)
		return;
	int expected = is_expected(sk, numbers);
	bpf_sk_release(sk);
	if (!expected)
		return;
	if (!is_sound(skb, connection, len)) {
		count(MALFORMED);
		return;
	}
	if (channel == 0)
		forget(connection);
	else
		enrol(skb, connection, channel);
}

SEC("classifier")
int umbel_smo(struct __sk_buff *skb)
{
	/* The IP header without options or extension headers. */
	u8 ip[40] = {}, tcp[TCP_HEADER];
	struct walk walk = {};
	struct connection connection = {};
	u32 source[4] = {}, len;
	u16 kind = SETTINGS.ipv6 ? 0x86DD : 0x0800;
	if (skb->protocol != swap16(kind))
		return NEXT;
	if (SETTINGS.ipv6) {
		if (bpf_skb_load_bytes(skb, ETHERNET, ip, 40) || ip[6] != TCP)
			return NEXT;
		__builtin_memcpy(source, ip + 8, 16);
		__builtin_memcpy(connection.local, ip + 24, 16);
		len = ip[4] << 8 | ip[5];
	} else {
		if (bpf_skb_load_bytes(skb, ETHERNET, ip, 20) || ip[9] != TCP)
			return NEXT;
		__builtin_memcpy(source, ip + 12, 4);
		__builtin_memcpy(connection.local, ip + 16, 4);
		len = (ip[2] << 8 | ip[3]) - 20;
	}
	if (!same_address(source, SETTINGS.source))
		return NEXT;
	int odd = SETTINGS.ipv6 ? ip[0] >> 4 != 6 : ip[0] != 0x45 || (ip[6] & 0x3F) || ip[7];
	u32 offset = tcp_offset();
	if (odd || bpf_skb_load_bytes(skb, offset, tcp, TCP_HEADER)) {
		count(MALFORMED);
		return NEXT;
	}
	u32 header = (tcp[12] >> 4) * 4;
	if (header < TCP_HEADER || header > len || len > 0xFFFF || offset + len > skb->len) {
		count(MALFORMED);
		return NEXT;
	}
	connection.source_port = tcp[0] << 8 | tcp[1];
	connection.port = tcp[2] << 8 | tcp[3];
	/* Other connections to the same host are none of its business. */
	if (connection.source_port != SETTINGS.port)
		return NEXT;
	struct numbers numbers = {
		.seq = (u32)tcp[4] << 24 | tcp[5] << 16 | tcp[6] << 8 | tcp[7],
		.ack = (u32)tcp[8] << 24 | tcp[9] << 16 | tcp[10] << 8 | tcp[11],
		.flags = tcp[13],
	};
	if (!same_address(connection.local, SETTINGS.group)) {
		learn(skb, &connection, &numbers, header, len);
		return NEXT;
	}

	/* The source multicasts neither, and either would end a connection. */
	if (numbers.flags & (SYN | RST)) {
		count(MALFORMED);
		return NEXT;
	}
	count(SEGMENTS);
	walk.skb = skb;
	walk.source_port = connection.source_port;
	walk.channel = connection.port;
	__builtin_memcpy(walk.now.address, connection.local, 16);
	walk.now.port = swap16(connection.port);
	__builtin_memcpy(&walk.now.ack, tcp + ACK, 4);
	walk.end = numbers.seq + len - header + !!(numbers.flags & FIN);
	struct rewrite original = walk.now;
	u8 mac[6];
	bpf_skb_load_bytes(skb, 0, mac, 6);
	u32 zero = 0, *used = bpf_map_lookup_elem(&USED, &zero);
	if (used)
		bpf_loop(*used, visit, &walk, 0);
	if (!walk.enrolled)
		count(NOT_ENROLLED);
	if (SETTINGS.in_place) {
		/* The last connection gets the packet itself. */
		if (walk.has_next) {
			rewrite(skb, &walk.now, &walk.next);
			bpf_skb_change_type(skb, PACKET_HOST);
			count(DELIVERED);
		}
		return NEXT;
	}
	if (walk.has_next) {
		deliver_copy(&walk);
		rewrite(skb, &walk.now, &original);
		bpf_skb_store_bytes(skb, 0, mac, 6, 0);
	}
	return NEXT;
}

/* Some helpers are for programs under this licence only, or under both. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
