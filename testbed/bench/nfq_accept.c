/* SPDX-License-Identifier: Apache-2.0 */
/* What a queue can do at most: accepts every packet of it, with libnetfilter_queue.
 *
 * nfq_accept QUEUE PACKETS COPIED-BYTES
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <linux/netfilter.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int accept_one(struct nfq_q_handle *queue, struct nfgenmsg *message, struct nfq_data *packet,
		      void *nothing)
{
	(void)message;
	(void)nothing;
	return nfq_set_verdict(queue, ntohl(nfq_get_msg_packet_hdr(packet)->packet_id), NF_ACCEPT,
			       0, NULL);
}

int main(int count, char **words)
{
	static char buffer[1 << 16] __attribute__((aligned(8)));
	struct nfq_handle *handle = nfq_open();
	struct nfq_q_handle *queue;

	if (count != 4 || !handle ||
	    !(queue = nfq_create_queue(handle, atoi(words[1]), accept_one, NULL)) ||
	    nfq_set_mode(queue, NFQNL_COPY_PACKET, atoi(words[3])) < 0 ||
	    nfq_set_queue_maxlen(queue, atoi(words[2])) < 0) {
		printf("{\"error\": \"nfq_accept: %s\"}\n", strerror(errno));
		return 1;
	}
	printf("{\"ready\": true}\n");
	fflush(stdout);
	for (;;) {
		int size = recv(nfq_fd(handle), buffer, sizeof(buffer), 0);

		if (size >= 0)
			nfq_handle_packet(handle, buffer, size);
		else if (errno != ENOBUFS && errno != EINTR)
			return 1;
	}
}
