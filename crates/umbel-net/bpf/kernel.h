/* What the kernel offers to programs at tc, as far as umbel's use it: a part of <linux/bpf.h>,
 * so that a compiler alone is enough to build them. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline

/* Maps are described by the types of the fields of a variable in ".maps". */
#define FIELD_NUMBER(name, value) int(*name)[value]
#define FIELD_TYPE(name, type) typeof(type) *name

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6 };
/* Whether an entry of a map may be there already. */
enum { ANY = 0, NEW = 1 };

/* The packet, up to the last field in use. */
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto;
	u32 priority, ingress_ifindex, ifindex;
	u32 tc_index, cb[5], hash, tc_classid, data, data_end;
	u32 napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4];
	u32 remote_port, local_port, data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
	u64 sk;
	u32 gso_size;
};

/* A lock in the value of a map; its name and type are known to the kernel. */
struct bpf_spin_lock {
	u32 val;
};

/* A question for a route, and its answer. */
struct fib_lookup {
	u8 family, l4_protocol;
	u16 sport, dport, tot_len;
	u32 ifindex, tos;
	union {
		u32 ipv4_src, ipv6_src[4];
	};
	union {
		/* Of the next hop, afterwards. */
		u32 ipv4_dst, ipv6_dst[4];
	};
	u16 vlan[2];
	u8 smac[6], dmac[6];
};

/* A next hop. */
struct redirect_neigh {
	u32 family;
	union {
		u32 ipv4, ipv6[4];
	};
};

enum { AF_INET = 2, AF_INET6 = 10 };
enum { FIB_LOOKUP_SKIP_NEIGH = 4 };
enum { ROOM_MAC = 1 };

struct bpf_sock {
	u32 bound_dev_if, family, type, protocol, mark, priority;
	u32 src_ip4, src_ip6[4], src_port;
	u16 dst_port, unused;
	u32 dst_ip4, dst_ip6[4];
	u32 state;
	s32 rx_queue_mapping;
};

struct bpf_tcp_sock {
	u32 snd_cwnd, srtt_us, rtt_min, snd_ssthresh, rcv_nxt, snd_nxt, snd_una;
};

struct bpf_sock_tuple {
	union {
		struct {
			u32 saddr, daddr;
			u16 sport, dport;
		} ipv4;
		struct {
			u32 saddr[4], daddr[4];
			u16 sport, dport;
		} ipv6;
	};
};

enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_FIN_WAIT1 = 4, TCP_FIN_WAIT2 = 5 };

/* What becomes of the packet: it goes to the next program, and then on; or nowhere. */
enum { NEXT = -1, DROP = 2 };

enum { PACKET_HOST = 0 };
enum { CURRENT_NETNS = -1 };
enum { F_INGRESS = 1 };
enum { F_PSEUDO_HDR = 1 << 4, F_MARK_MANGLED_0 = 1 << 5, F_IPV6 = 1 << 7 };

/* Helpers are called by their numbers. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) =
	(void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, u32 offset, const void *from, u32 len,
				   u64 flags) = (void *)9;
static long (*bpf_l3_csum_replace)(struct __sk_buff *skb, u32 offset, u64 from, u64 to,
				   u64 size) = (void *)10;
static long (*bpf_l4_csum_replace)(struct __sk_buff *skb, u32 offset, u64 from, u64 to,
				   u64 flags) = (void *)11;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, u32 ifindex, u64 flags) = (void *)13;
static long (*bpf_skb_load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;
static long (*bpf_csum_diff)(u32 *from, u32 from_size, u32 *to, u32 to_size, u32 seed) =
	(void *)28;
static long (*bpf_skb_change_type)(struct __sk_buff *skb, u32 type) = (void *)32;
static long (*bpf_skb_change_tail)(struct __sk_buff *skb, u32 len, u64 flags) = (void *)38;
static long (*bpf_skb_adjust_room)(struct __sk_buff *skb, s32 len, u32 mode, u64 flags) =
	(void *)50;
static long (*bpf_fib_lookup)(void *ctx, struct fib_lookup *params, s32 len, u32 flags) =
	(void *)69;
static struct bpf_sock *(*bpf_sk_lookup_tcp)(void *ctx, struct bpf_sock_tuple *tuple, u32 size,
					     u64 netns, u64 flags) = (void *)84;
static long (*bpf_sk_release)(void *sock) = (void *)86;
static long (*bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static struct bpf_tcp_sock *(*bpf_tcp_sock)(struct bpf_sock *sk) = (void *)96;
static long (*bpf_redirect_neigh)(u32 ifindex, struct redirect_neigh *params, s32 len,
				  u64 flags) = (void *)152;
static long (*bpf_loop)(u32 count, void *callback, void *ctx, u64 flags) = (void *)181;
