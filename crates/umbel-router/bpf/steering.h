/* Steers requests of LMS and turns DMCASTs into multicasts where packets arrive (tc ingress): the
 * plain cases of what umbel-engine/src/lms/router and umbel-router/src/daemon/lms.rs do. V6 says for
 * which family.
 *
 *   request  ── LINKS: where it goes ── allowance ── requestor, turning point ──▶ replier, or up
 *   DMCAST   ── tag, LINKS, credit, allowance ── repair, under the source's address ──▶ interface
 *
 * What it does not take goes on to the daemon, which then does the same. It drops only what the
 * daemon would drop that cannot be anything else: forged turning points, and what is over a limit.
 *
 * steering4.bpf.o and steering6.bpf.o are made of this file by umbel-net/bpf/build.sh. */
#pragma once

#include "layout.h"
#include "numbers.h"
#include "tag.h"

/* Takes from a bucket. Returns whether it held enough. */
INLINE int take(struct meter *meter, const struct limit *limit, u64 now)
{
	u64 cost = limit->cost, depth = limit->depth;
	bpf_spin_lock(&meter->lock);
	u64 full_at = (meter->full_at > now ? meter->full_at : now) + cost;
	int holds = full_at - now <= depth;
	if (holds)
		meter->full_at = full_at;
	bpf_spin_unlock(&meter->lock);
	return holds;
}

/* A packet, and what is read of it. */
struct packet {
	struct __sk_buff *skb;
	const struct settings *settings;
	u64 now;
	/* Addresses and ports, in network order. */
	struct address source, destination;
	u16 source_port, destination_port;
	/* Length of the IP header, and place and length of the message. */
	u32 header, message, len;
	struct link link;
};

/* Returns what the host has used up that sent a packet; none if the daemon does not know it. */
INLINE struct meter *meter_of_sender(const struct packet *packet)
{
	struct sender key = { .address = packet->source, .interface = packet->skb->ifindex };
	return bpf_map_lookup_elem(&SENDERS, &key);
}

/* Reads the channel in front of a message's other fields. */
INLINE int read_channel(const u8 *message, struct link *link)
{
	const u8 *field = message + HEADER;
	if (field[0] | (field[1] ^ CHANNEL) | field[2] | field[3] | field[4] |
	    (field[5] ^ CHANNEL_LEN) | (field[6] ^ WITH_SOURCE))
		return 0;
	link->group = address_at(field + 7);
	link->source = address_at(field + 7 + ADDRESS);
	link->port = net16(field + 7 + 2 * ADDRESS);
	return is_multicast(&link->group) && !is_multicast(&link->source) &&
	       !is_none(&link->source) && link->port != 0;
}

/* Changes the checksum of UDP. It is whole, or only that of the pseudo-header where a card was to
 * do the rest: the kernel knows which, and leaves the difference of the body out then. */
INLINE void change_checksum(const struct packet *packet, struct scratch *scratch, u32 body)
{
	const struct heads *heads = &scratch->heads;
	struct pseudo *before = &scratch->pseudo[0], *after = &scratch->pseudo[1];
	u16 len = swap16(packet->len + UDP);
	for (int i = 0; i < WORDS; i++) {
		before->source[i] = packet->source.word[i];
		before->destination[i] = packet->destination.word[i];
		after->source[i] = heads->source.word[i];
		after->destination[i] = heads->destination.word[i];
	}
	before->len = len;
	after->len = heads->len;
	u32 ports[2] = { packet->source_port | (u32)packet->destination_port << 16, len };
	u32 new_ports[2] = { heads->source_port | (u32)heads->destination_port << 16, heads->len };
	u32 at = ETHERNET + packet->header + 6;
	u64 flags = F_PSEUDO_HDR | F_MARK_MANGLED_0;
	body = bpf_csum_diff(ports, 8, new_ports, 8, body);
	u32 pseudo = bpf_csum_diff((u32 *)before, sizeof(*before), (u32 *)after, sizeof(*after), 0);
	/* Before Linux 6.16 there is no such flag; then it is no mistake without it either, but for
	 * cards that sum up whole packets. */
	if (!V6 || bpf_l4_csum_replace(packet->skb, at, 0, pseudo, flags | F_IPV6))
		bpf_l4_csum_replace(packet->skb, at, 0, pseudo, flags);
	bpf_l4_csum_replace(packet->skb, at, 0, body, F_MARK_MANGLED_0);
}

/* Writes the headers of IP and UDP, all but the checksum of UDP. */
INLINE int write_heads(const struct packet *packet, struct scratch *scratch)
{
	struct __sk_buff *skb = packet->skb;
	const struct heads *heads = &scratch->heads;
	struct ip *ip = &scratch->ip;
	u32 header = IP + (heads->alert ? ALERT : 0);
#if V6
	*ip = (struct ip){
		.version = 0x60,
		.len = swap16(header - IP + swap16(heads->len)),
		.next = heads->alert ? HOP_BY_HOP : IP_UDP,
		.hops = heads->hops,
		.alert = { IP_UDP, 0, ALERT_OPTION, 2, ALERT_VALUE >> 8, ALERT_VALUE & 0xFF, 1, 0 },
	};
#else
	*ip = (struct ip){
		.version = 0x40 | header / 4,
		.len = swap16(header + swap16(heads->len)),
		.fragment = { DONT_FRAGMENT },
		.hops = heads->hops,
		.protocol = IP_UDP,
	};
	if (heads->alert) {
		ip->alert[0] = ALERT_OPTION;
		ip->alert[1] = ALERT;
	}
#endif
	for (int i = 0; i < WORDS; i++) {
		ip->source[i] = heads->source.word[i];
		ip->destination[i] = heads->destination.word[i];
	}
#if !V6
	ip->checksum = ~folded(bpf_csum_diff(0, 0, (u32 *)ip, sizeof(*ip), 0));
#endif
	u16 udp[3] = { heads->source_port, heads->destination_port, heads->len };
	if (bpf_skb_store_bytes(skb, ETHERNET + packet->header, udp, 6, 0))
		return -1;
	/* The packet begins some bytes later. So UDP stays where a card may look for it. */
	if (header < packet->header && bpf_skb_adjust_room(skb, -ALERT, ROOM_MAC, 0))
		return -1;
	if (heads->alert)
		return bpf_skb_store_bytes(skb, ETHERNET, ip, IP + ALERT, 0);
	return bpf_skb_store_bytes(skb, ETHERNET, ip, IP, 0);
}

/* Returns whether a field of one type, and of a length up to a limit, is at a place. */
INLINE u32 field_at(const u8 *message, u32 at, u8 type)
{
	if (at > MAX_REQUEST)
		return 0;
	const u8 *field = message + at;
	if (field[0] | (field[1] ^ type) | field[2] | field[3] | field[4])
		return 0;
	return field[5];
}

/* Reads a number as it is written: without needless bytes. Returns -1 if it is another. */
APART s64 number_at(const struct scratch *scratch, u32 at, u32 len, u32 most)
{
	u64 value = 0;
	u8 byte = 0;
	if (!scratch || len == 0 || len > most || at > MAX_REQUEST)
		return -1;
	for (u32 i = 0; i < VARINT_63; i++) {
		byte = scratch->message[at + i];
		value |= (u64)(byte & 0x7F) << (7 * i);
		if (i + 1 == len)
			break;
		if (byte < 0x80)
			return -1;
	}
	if (byte >= 0x80 || (byte == 0 && len > 1))
		return -1;
	return value;
}

/* Number of bits that are set. */
INLINE u32 ones(u32 bits)
{
	bits -= bits >> 1 & 0x55555555;
	bits = (bits & 0x33333333) + (bits >> 2 & 0x33333333);
	return ((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

/* What a request says beside its channel. */
struct request {
	/* Number of units that it asks for. */
	u32 units;
	/* Place of what follows the number, and of what is there of it, or 0. */
	u32 tail, requestor, point, flags;
	u8 hops;
};

/* Reads a request as routers and receivers write it. */
INLINE int read_request(const struct packet *packet, const struct scratch *scratch,
			struct request *request)
{
	const u8 *message = scratch->message;
	u32 at = AFTER_CHANNEL, len;
	s64 value;
	len = field_at(message, at, TSI);
	value = number_at(scratch, at + FIELD, len, VARINT_32);
	if (value < 0 || value >> 32)
		return 0;
	at += FIELD + len;
	len = field_at(message, at, SEQUENCE);
	if (number_at(scratch, at + FIELD, len, VARINT_63) < 0)
		return 0;
	at += FIELD + len;
	request->units = 1;
	len = field_at(message, at, FOLLOWING);
	if (len) {
		value = number_at(scratch, at + FIELD, len, VARINT_32);
		if (value <= 0 || value >> 32)
			return 0;
		request->units += ones(value);
		at += FIELD + len;
	}
	len = field_at(message, at, NUMBER);
	value = number_at(scratch, at + FIELD, len, 2);
	if (value <= 0 || value >> 8)
		return 0;
	at += FIELD + len;
	request->tail = at;
	if (field_at(message, at, REQUESTOR) == HOST_LEN) {
		const u8 *host = message + at + FIELD;
		struct address address = address_at(host + 1);
		if (host[0] != HOST || is_multicast(&address) || is_none(&address) ||
		    !net16(host + 1 + ADDRESS))
			return 0;
		request->requestor = at;
		at += FIELD + HOST_LEN;
	}
	if (field_at(message, at, TURNING_POINT) == TURNING_POINT_LEN) {
		const u8 *point = message + at + FIELD;
		struct address address = address_at(point + 1);
		if (point[0] != HOST || is_multicast(&address) || is_none(&address) ||
		    !net16(point + 1 + ADDRESS))
			return 0;
		if (same(&address, &packet->settings->address))
			return 0;
		request->point = at;
		at += FIELD + TURNING_POINT_LEN;
	}
	if (field_at(message, at, FLAGS) == 1) {
		if (message[at + FIELD] != UNICAST)
			return 0;
		request->flags = at;
		at += FIELD + 1;
	}
	if (field_at(message, at, HOPS) != 1 || message[at + FIELD] >= MAX_HOPS)
		return 0;
	request->hops = message[at + FIELD];
	return at + FIELD + 1 == packet->len;
}

INLINE void put(u8 *out, u8 type, u8 len)
{
	out[0] = out[2] = out[3] = out[4] = 0;
	out[1] = type;
	out[5] = len;
}

/* Writes what follows the number. Returns its length. */
INLINE u32 write_tail(const struct packet *packet, const u8 *message, u8 *out,
		      const struct request *request, u64 tag, int stamps)
{
	const struct settings *settings = packet->settings;
	u32 at = 0;
	put(out, REQUESTOR, HOST_LEN);
	if (request->requestor) {
		u32 from = request->requestor;
		if (from > MAX_REQUEST)
			return 0;
		__builtin_memcpy(out + FIELD, message + from + FIELD, HOST_LEN);
	} else {
		out[FIELD] = HOST;
		__builtin_memcpy(out + FIELD + 1, &packet->source, ADDRESS);
		__builtin_memcpy(out + FIELD + 1 + ADDRESS, &packet->source_port, 2);
	}
	at += FIELD + HOST_LEN;
	if (request->point) {
		u32 from = request->point;
		if (from > MAX_REQUEST)
			return 0;
		__builtin_memcpy(out + at, message + from, FIELD + TURNING_POINT_LEN);
		at += FIELD + TURNING_POINT_LEN;
	} else if (stamps) {
		u8 *point = out + at + FIELD;
		u32 interface = swap32(packet->link.interface);
		u64 big = swap64(tag);
		put(out + at, TURNING_POINT, TURNING_POINT_LEN);
		point[0] = HOST;
		__builtin_memcpy(point + 1, &settings->address, ADDRESS);
		__builtin_memcpy(point + 1 + ADDRESS, &settings->port, 2);
		__builtin_memcpy(point + HOST_LEN, &interface, 4);
		__builtin_memcpy(point + HOST_LEN + 4, &big, 8);
		at += FIELD + TURNING_POINT_LEN;
	}
	if (request->flags) {
		put(out + at, FLAGS, 1);
		out[at + FIELD] = UNICAST;
		at += FIELD + 1;
	}
	put(out + at, HOPS, 1);
	out[at + FIELD] = request->hops + 1;
	return at + FIELD + 1;
}

/* Steers a request. */
INLINE int on_request(struct packet *packet, struct scratch *scratch)
{
	struct __sk_buff *skb = packet->skb;
	const struct settings *settings = packet->settings;
	u8 *message = scratch->message;
	struct request request = {};
	int alerted = packet->header > IP;
	if (packet->len > MAX_REQUEST || packet->len < AFTER_CHANNEL)
		return NEXT;
	if (bpf_skb_load_bytes(skb, packet->message, message, packet->len))
		return NEXT;
	if (swap32(net32(message + 4)) != packet->len - HEADER)
		return NEXT;
	if (!read_channel(message, &packet->link) || !read_request(packet, scratch, &request))
		return NEXT;
	packet->link.interface = skb->ifindex;
	const struct way *way = bpf_map_lookup_elem(&LINKS, &packet->link);
	if (!way)
		return NEXT;
	const struct steer *steer =
		same(&packet->source, &way->replier) ? &way->of_replier : &way->of_others;
	u32 how = steer->how & ~STAMP;
	/* From below they are on their way to the source, from above addressed to this router. */
	if (how == LEFT || (how == DOWN) == alerted)
		return NEXT;
	if (alerted && !same(&packet->destination, &packet->link.source))
		return NEXT;
	if (how == DOWN && !request.requestor)
		return NEXT;

	struct fib_lookup *route = &scratch->route;
	*route = (struct fib_lookup){
		.family = FAMILY,
		.l4_protocol = IP_UDP,
		.ifindex = skb->ifindex,
	};
	__builtin_memcpy(route->ipv6_src, &settings->address, ADDRESS);
	__builtin_memcpy(route->ipv6_dst, &steer->address, ADDRESS);
	if (bpf_fib_lookup(skb, route, sizeof(*route), FIB_LOOKUP_SKIP_NEIGH) ||
	    route->family != FAMILY)
		return NEXT;

	struct meter *of_sender = meter_of_sender(packet);
	struct meter *of_link = bpf_map_lookup_elem(&METERS, &packet->link);
	if (!of_sender || !of_link)
		return NEXT;
	if (!take(of_sender, &settings->datagrams, packet->now)) {
		count(HOST_FLOOD);
		return DROP;
	}
	if (!take(of_link, &settings->requests, packet->now)) {
		count(REQUEST_FLOOD);
		return DROP;
	}

	int stamps = (steer->how & STAMP) && !request.point;
	u64 tag = 0;
	if (stamps)
		tag = tag_of(settings, &packet->link, packet->now / settings->lifetime);
	u32 odd = request.tail & 1, tail = request.tail;
	__builtin_memset(scratch->before, 0, sizeof(scratch->before));
	__builtin_memset(scratch->after, 0, sizeof(scratch->after));
	u32 before = packet->len - tail;
	PINNED(before);
	if (before == 0 || before > MAX_TAIL ||
	    bpf_skb_load_bytes(skb, packet->message + tail, scratch->before + odd, before))
		return NEXT;
	u32 after = write_tail(packet, message, scratch->after + odd, &request, tag, stamps);
	PINNED(after);
	if (after == 0 || after > MAX_TAIL)
		return NEXT;
	u32 len = tail + after;
	u32 difference = bpf_csum_diff((u32 *)scratch->before, sizeof(scratch->before),
				       (u32 *)scratch->after, sizeof(scratch->after), 0);
	u32 body_before = swap32(packet->len - HEADER), body_after = swap32(len - HEADER);
	difference = bpf_csum_diff(&body_before, 4, &body_after, 4, difference);
	scratch->heads = (struct heads){
		.source = settings->address,
		.destination = steer->address,
		.source_port = settings->port,
		.destination_port = steer->port,
		.len = swap16(len + UDP),
		.hops = settings->hops,
		.alert = how == UP,
	};
	int failed = 0;
	if (len != packet->len) {
		failed |= !!bpf_skb_change_tail(skb, packet->message + len, 0);
		failed |= !!bpf_skb_store_bytes(skb, packet->message + 4, &body_after, 4, 0);
	}
	failed |= !!bpf_skb_store_bytes(skb, packet->message + tail, scratch->after + odd, after, 0);
	change_checksum(packet, scratch, difference);
	failed |= !!write_heads(packet, scratch);
	if (failed) {
		count(UNSENT);
		return DROP;
	}

	if (stamps) {
		u32 credit = request.units * settings->per_unit, most = settings->most;
		u64 now = packet->now, expires = now + settings->credit_lifetime;
		bpf_spin_lock(&of_link->lock);
		if (of_link->expires > now)
			credit += of_link->credit;
		of_link->credit = credit < most ? credit : most;
		of_link->expires = expires;
		bpf_spin_unlock(&of_link->lock);
	}
	count(how == UP ? SENT_UP : how == TURN ? TURNED : SENT_DOWN);
	struct redirect_neigh next = { .family = FAMILY };
	__builtin_memcpy(next.ipv6, route->ipv6_dst, ADDRESS);
	return bpf_redirect_neigh(route->ifindex, &next, sizeof(next), 0);
}

/* Turns a DMCAST into a multicast on one interface. */
INLINE int on_dmcast(struct packet *packet, struct scratch *scratch)
{
	struct __sk_buff *skb = packet->skb;
	const struct settings *settings = packet->settings;
	u8 *message = scratch->message;
	if (packet->header != IP || packet->len < AROUND_REPAIR)
		return NEXT;
	u32 repair = packet->len - AROUND_REPAIR;
	PINNED(repair);
	if (repair < 4 || repair > MAX_REPAIR ||
	    bpf_skb_load_bytes(skb, packet->message, message, AROUND_REPAIR + 4))
		return NEXT;
	if (swap32(net32(message + 4)) != packet->len - HEADER ||
	    !read_channel(message, &packet->link))
		return NEXT;
	const u8 *field = message + AFTER_CHANNEL, *point = field + FIELD;
	if (field_at(message, AFTER_CHANNEL, TURNING_POINT) != TURNING_POINT_LEN)
		return NEXT;
	struct address router = address_at(point + 1);
	if (point[0] != HOST || !same(&router, &settings->address) || !net16(point + 1 + ADDRESS))
		return NEXT;
	field = message + AFTER_POINT;
	if (field[0] || field[1] != PAYLOAD || swap32(net32(field + 2)) != repair)
		return NEXT;
	field += FIELD;
	if (field[0] != 'U' || field[1] != 'm' || field[3] != REPAIR)
		return NEXT;

	packet->link.interface = swap32(net32(point + HOST_LEN));
	struct link key = packet->link;
	key.interface = 0;
	const struct way *way = bpf_map_lookup_elem(&LINKS, &packet->link);
	struct meter *of_sender = meter_of_sender(packet);
	struct meter *of_link = bpf_map_lookup_elem(&METERS, &packet->link);
	struct meter *of_channel = bpf_map_lookup_elem(&METERS, &key);
	/* Without a branch there the daemon says whether it was ever this router's. */
	if (!way || !way->is_output || !of_sender || !of_link || !of_channel)
		return NEXT;
	if (IP + UDP + repair > way->mtu)
		return NEXT;
	u64 now = packet->now, epoch = now / settings->lifetime, tag = swap64(net64(point + HOST_LEN + 4));
	if (tag != tag_of(settings, &packet->link, epoch) &&
	    (epoch == 0 || tag != tag_of(settings, &packet->link, epoch - 1))) {
		if (!take(of_sender, &settings->datagrams, now)) {
			count(HOST_FLOOD);
			return DROP;
		}
		count(FORGED);
		return DROP;
	}
	/* The daemon may have steered the request. */
	if (of_link->credit == 0 || of_link->expires <= now)
		return NEXT;
	if (!take(of_sender, &settings->datagrams, now)) {
		count(HOST_FLOOD);
		return DROP;
	}
	if (!take(of_channel, &settings->dmcasts, now)) {
		count(DMCAST_FLOOD);
		return DROP;
	}
	count(DMCASTS);
	bpf_spin_lock(&of_link->lock);
	int has = of_link->credit > 0 && of_link->expires > now;
	if (has)
		of_link->credit -= 1;
	bpf_spin_unlock(&of_link->lock);
	if (!has) {
		count(UNASKED);
		return DROP;
	}

	scratch->heads = (struct heads){
		.source = packet->link.source,
		.destination = packet->link.group,
		.source_port = packet->link.port,
		.destination_port = packet->link.port,
		.len = swap16(repair + UDP),
		.hops = settings->repair_hops,
	};
	/* UDP stays where a card may look for it, and what is in it moves forward. */
	u32 difference = bpf_csum_diff((u32 *)message, AROUND_REPAIR, 0, 0, 0);
	int failed = !!bpf_skb_load_bytes(skb, packet->message + AROUND_REPAIR, scratch->repair, repair);
	failed |= !!bpf_skb_store_bytes(skb, packet->message, scratch->repair, repair, 0);
	failed |= !!bpf_skb_change_tail(skb, packet->message + repair, 0);
	change_checksum(packet, scratch, difference);
	failed |= !!write_heads(packet, scratch);
	if (failed) {
		count(UNSENT);
		return DROP;
	}
	/* The address of a group is mapped to one of Ethernet. */
	struct redirect_neigh next = { .family = FAMILY };
	__builtin_memcpy(next.ipv6, &packet->link.group, ADDRESS);
	return bpf_redirect_neigh(packet->link.interface, &next, sizeof(next), 0);
}

/* Returns the length of a packet that the kernel would neither drop nor change, and that has no
 * other options than Router Alert; 0 for others. */
INLINE u32 len_of(const u8 *ip, u32 header)
{
#if V6
	if (ip[0] >> 4 != 6 || ip[6] != (header > IP ? HOP_BY_HOP : IP_UDP))
		return 0;
	if (header > IP && (ip[40] != IP_UDP || ip[41] || ip[42] != ALERT_OPTION || ip[43] != 2 ||
			    net16(ip + 44) != swap16(ALERT_VALUE) || ip[46] != 1 || ip[47]))
		return 0;
	return IP + swap16(net16(ip + 4));
#else
	if (folded(bpf_csum_diff(0, 0, (u32 *)ip, IP + ALERT, 0)) != 0xFFFF)
		return 0;
	if ((ip[6] & 0x3F) | ip[7])
		return 0;
	if (header > IP && (ip[20] != ALERT_OPTION || ip[21] != ALERT || ip[22] | ip[23]))
		return 0;
	return swap16(net16(ip + 2));
#endif
}

/* Takes apart what may be a message, after the first look. */
static __attribute__((noinline)) int look_at(struct __sk_buff *skb, const struct settings *settings,
					     u32 header)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&SCRATCH, &zero);
	u8 ip[IP + ALERT] = {}, udp[UDP + 4];
	if (!scratch || !settings)
		return NEXT;
	if (header == IP ? bpf_skb_load_bytes(skb, ETHERNET, ip, IP) :
			   bpf_skb_load_bytes(skb, ETHERNET, ip, IP + ALERT))
		return NEXT;
	header = header == IP ? IP : IP + ALERT;
	if (bpf_skb_load_bytes(skb, ETHERNET + header, udp, sizeof(udp)))
		return NEXT;
	if (udp[8] != 'U' || udp[9] != 'm' || udp[10] != 1)
		return NEXT;
	u32 len = len_of(ip, header), udp_len = swap16(net16(udp + 4));
	if (!len || skb->gso_size || skb->len != ETHERNET + len || len != header + udp_len ||
	    udp_len < UDP + HEADER)
		return NEXT;
	/* Without a checksum there is none to be changed. */
	if (!(udp[6] | udp[7]))
		return NEXT;
	struct packet packet = {
		.skb = skb,
		.settings = settings,
		.now = bpf_ktime_get_ns() - settings->clock,
		.source = address_at(ip + SOURCE_AT),
		.destination = address_at(ip + SOURCE_AT + ADDRESS),
		.source_port = net16(udp),
		.destination_port = net16(udp + 2),
		.header = header,
		.message = ETHERNET + header + UDP,
		.len = udp_len - UDP,
	};
	if (!is_host(&packet.source) || !packet.source_port)
		return NEXT;
	int made = NEXT;
	if (udp[11] == REQUEST) {
		made = on_request(&packet, scratch);
		if (made == NEXT)
			count(LEFT_REQUESTS);
	} else if (udp[11] == DMCAST) {
		made = on_dmcast(&packet, scratch);
		if (made == NEXT)
			count(LEFT_DMCASTS);
	}
	return made;
}

SEC("classifier")
int umbel_steering(struct __sk_buff *skb)
{
	const u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 zero = 0;
	/* Data packets shall be through here at once. */
	if (skb->protocol != swap16(ETHERTYPE) || skb->pkt_type != PACKET_HOST)
		return NEXT;
	if (data + ETHERNET + IP + UDP > end)
		return NEXT;
	const u8 *ip = data + ETHERNET;
#if V6
	if (ip[6] != IP_UDP && (ip[6] != HOP_BY_HOP || ip[40] != IP_UDP))
		return NEXT;
	int alerted = ip[6] == HOP_BY_HOP;
#else
	if (ip[9] != IP_UDP || (ip[0] != 0x45 && ip[0] != 0x46))
		return NEXT;
	int alerted = ip[0] == 0x46;
#endif
	const struct settings *settings = bpf_map_lookup_elem(&SETTINGS, &zero);
	if (!settings || is_none(&settings->address))
		return NEXT;
	if (alerted)
		return look_at(skb, settings, IP + ALERT);
	struct address to = address_at(ip + SOURCE_AT + ADDRESS);
	if (!same(&to, &settings->address) || net16(ip + IP + 2) != settings->port)
		return NEXT;
	return look_at(skb, settings, IP);
}

/* Some helpers are for programs under this licence only, or under both. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
