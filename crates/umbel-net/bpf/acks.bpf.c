/* Drops acknowledgements that a TCP-SMO source can do without: see
 * umbel-engine/src/smo/ack_filter.rs, which has the rule.
 *
 * It runs where frames arrive (XDP), before the kernel makes packets of them. What it is not sure
 * of, it lets pass: so does it everything while its maps are empty.
 *
 * acks.bpf.o is made of this file by build.sh. */

#include "kernel.h"

enum { ETHERNET = 14, TCP = 6, TCP_HEADER = 20 };
enum { ACK = 16 };
/* Length of a TCP header without options, as its first octet says, and no flag of the second. */
enum { BARE = 0x50 };

enum { MAX_CONNECTIONS = 16384, MAX_MASTERS = 1024 };

/* What becomes of a frame. */
enum { XDP_DROP = 1, XDP_PASS = 2 };

/* The frame. */
struct xdp_md {
	u32 data, data_end, data_meta;
	u32 ingress_ifindex, rx_queue_index, egress_ifindex;
};

/* Set when the program is loaded. */
struct settings {
	/* In network order, IPv4 in the first word. */
	u32 server[4];
	u32 ipv6;
	/* In network order. */
	u16 port, unused;
};

volatile const struct settings SETTINGS = {};

/* The address of a child. */
struct peer {
	u32 address[4];
	/* In network order. */
	u16 port, unused;
};

/* The rule of a child, and how it stands. */
struct rule {
	/* In nanoseconds. */
	u64 period, next;
	u32 master;
	/* In host order. */
	u32 seq, last;
	u32 step;
};

struct {
	FIELD_NUMBER(type, MAP_HASH);
	FIELD_NUMBER(max_entries, MAX_CONNECTIONS);
	FIELD_TYPE(key, struct peer);
	FIELD_TYPE(value, struct rule);
} RULES SEC(".maps");

/* From which number on everything of each master's children is wanted, in host order. It is known if
 * the upper half is not 0. */
struct {
	FIELD_NUMBER(type, MAP_ARRAY);
	FIELD_NUMBER(max_entries, MAX_MASTERS);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, u64);
} WANTED SEC(".maps");

/* Number of frames that were dropped. */
struct {
	FIELD_NUMBER(type, MAP_PERCPU_ARRAY);
	FIELD_NUMBER(max_entries, 1);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, u64);
} DROPPED SEC(".maps");

INLINE u32 number(const u8 *at)
{
	return (u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

INLINE int is_server(const u8 *address)
{
	const u32 *words = (const u32 *)address;
	if (words[0] != SETTINGS.server[0])
		return 0;
	return !SETTINGS.ipv6 || (words[1] == SETTINGS.server[1] &&
				  words[2] == SETTINGS.server[2] && words[3] == SETTINGS.server[3]);
}

/* Returns whether a plain ACK is not wanted. */
INLINE int may_go(struct rule *rule, u32 ack)
{
	u64 *wanted = bpf_map_lookup_elem(&WANTED, &rule->master);
	if (!wanted || !(*wanted >> 32))
		return 0;
	if (rule->step == 0 || (s32)(ack - (u32)*wanted) >= 0)
		return 0;
	s32 progress = ack - rule->last;
	u64 now = bpf_ktime_get_ns();
	if (progress < (s32)rule->step && now < rule->next)
		return 1;
	if (progress > 0)
		rule->last = ack;
	rule->next = now + rule->period;
	return 0;
}

/* Also of frames of several parts: only headers are looked at. */
SEC("xdp.frags")
int umbel_smo_acks(struct xdp_md *frame)
{
	u8 *at = (u8 *)(u64)frame->data, *end = (u8 *)(u64)frame->data_end;
	u32 ip_len = SETTINGS.ipv6 ? 40 : 20;
	struct peer peer = {};
	u32 len;
	if (at + ETHERNET + 40 > end)
		return XDP_PASS;
	u8 *ip = at + ETHERNET;
	if (SETTINGS.ipv6) {
		if (at[12] != 0x86 || at[13] != 0xDD || ip[0] >> 4 != 6 || ip[6] != TCP ||
		    !is_server(ip + 24))
			return XDP_PASS;
		__builtin_memcpy(peer.address, ip + 8, 16);
		len = ip[4] << 8 | ip[5];
	} else {
		/* Without options, and no fragment. */
		if (at[12] != 8 || at[13] != 0 || ip[0] != 0x45 || ip[9] != TCP ||
		    (ip[6] & 0x3F) || ip[7] || !is_server(ip + 16))
			return XDP_PASS;
		__builtin_memcpy(peer.address, ip + 12, 4);
		len = (ip[2] << 8 | ip[3]) - 20;
	}
	u8 *tcp = ip + ip_len;
	if (tcp + TCP_HEADER > end || *(u16 *)(tcp + 2) != SETTINGS.port)
		return XDP_PASS;
	peer.port = *(u16 *)tcp;
	struct rule *rule = bpf_map_lookup_elem(&RULES, &peer);
	if (!rule)
		return XDP_PASS;
	if (len != TCP_HEADER || tcp[12] != BARE || tcp[13] != ACK || number(tcp + 4) != rule->seq) {
		/* Something is not as usual. Until it is known what, everything passes. */
		rule->step = 0;
		return XDP_PASS;
	}
	if (!may_go(rule, number(tcp + 8)))
		return XDP_PASS;
	u32 first = 0;
	u64 *dropped = bpf_map_lookup_elem(&DROPPED, &first);
	if (dropped)
		*dropped += 1;
	return XDP_DROP;
}

/* Some helpers are for programs under this licence only, or under both. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
