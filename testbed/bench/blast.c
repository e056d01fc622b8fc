/* SPDX-License-Identifier: Apache-2.0 */
/* Sends UDP packets over Ethernet as fast as one processor can, or at a rate.
 *
 * blast DEVICE SOURCE-MAC DESTINATION-MAC SOURCE-IP FIRST-IP ADDRESSES FRAME-BYTES SECONDS RATE [FLOWS]
 *
 * Frames (without checksum: 60 bytes are "64-byte frames") go round ADDRESSES destinations from
 * FIRST-IP on, in steps that no cache or prefetcher foresees, past the queueing discipline. RATE is
 * in packets/s; 0: without end. FLOWS is how many source ports take turns at each destination; 0: 64
 * take turns whatever the destination is. Prints {"ready": true} before the first packet, and
 * {"packets": ..., "seconds": ...} after the last.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 64, HEADERS = 14 + 20 + 8, FRAME_MAX = 1514, STRIDE = 7919, FLOWS = 8 };

static uint8_t frames[BATCH][FRAME_MAX];

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	printf("{\"error\": \"blast: %s: %s\"}\n", what, strerror(errno));
	exit(1);
}

static void put16(uint8_t *at, unsigned value)
{
	at[0] = value >> 8;
	at[1] = value;
}

static void mac(uint8_t *at, const char *text)
{
	if (sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", at, at + 1, at + 2, at + 3, at + 4,
		   at + 5) != 6)
		fail("a MAC address");
}

/* Complete the headers for a destination. */
static void address(uint8_t *frame, uint32_t destination, unsigned port)
{
	uint8_t *ip = frame + 14;
	uint32_t sum = 0;

	destination = htonl(destination);
	memcpy(ip + 16, &destination, 4);
	put16(ip + 10, 0);
	for (int i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	put16(ip + 10, ~(sum + (sum >> 16)));
	put16(ip + 20, port);
}

int main(int count, char **words)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	struct mmsghdr messages[BATCH] = { 0 };
	struct iovec parts[BATCH];
	int one = 1, batch = BATCH;

	if (count != 10 && count != 11)
		fail("ten words, or eleven");
	unsigned size = atoi(words[7]);
	uint32_t first, source, addresses = atoi(words[6]);
	double seconds = atof(words[8]), rate = atof(words[9]);
	uint32_t flows = count == 11 ? atoi(words[10]) : 0;
	if (size < HEADERS || size > FRAME_MAX || !addresses ||
	    inet_pton(AF_INET, words[4], &source) != 1 || inet_pton(AF_INET, words[5], &first) != 1)
		fail("a number or an address");
	first = ntohl(first);
	int out = socket(AF_PACKET, SOCK_RAW, 0);
	if (out < 0 || setsockopt(out, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)))
		fail("a packet socket");
	to.sll_ifindex = if_nametoindex(words[1]);
	if (bind(out, (struct sockaddr *)&to, sizeof(to)))
		fail(words[1]);
	for (int i = 0; i < BATCH; i++) {
		uint8_t *frame = frames[i], *ip = frame + 14;

		mac(frame, words[3]);
		mac(frame + 6, words[2]);
		put16(frame + 12, ETH_P_IP);
		ip[0] = 0x45;
		put16(ip + 2, size - 14);
		ip[8] = 64;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, &source, 4);
		put16(ip + 22, 9);
		put16(ip + 24, size - 34);
		parts[i] = (struct iovec){ frame, size };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	if (rate > 0 && rate < 2000 * BATCH)
		batch = rate < 2000 ? 1 : rate / 2000;
	puts("{\"ready\": true}");
	fflush(stdout);
	uint64_t sent = 0, next = 0;
	double begin = now(), elapsed;
	while ((elapsed = now() - begin) < seconds) {
		if (rate > 0 && sent + batch > elapsed * rate) {
			double wait = (sent + batch) / rate - elapsed;
			struct timespec nap = { 0, (wait < 0.5 ? wait : 0.5) * 1e9 };

			nanosleep(&nap, 0);
			continue;
		}
		for (int i = 0; i < batch; i++, next++)
			address(frames[i], first + next * STRIDE % addresses,
				1024 + (flows ? next / addresses % flows : next % FLOWS));
		int done = sendmmsg(out, messages, batch, 0);
		if (done > 0)
			sent += done;
		else if (errno != ENOBUFS && errno != EINTR)
			fail("sendmmsg");
	}
	printf("{\"packets\": %llu, \"seconds\": %.6f}\n", (unsigned long long)sent, elapsed);
	return 0;
}
