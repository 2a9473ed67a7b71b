// SPDX-License-Identifier: BSD-2-Clause
//
// Another process, as a rule of another node. One connection serves all queue pairs of the two processes,
// with requests and answers of both directions. A RemotePeer outlives its connection: how far each queue pair
// has got does not depend on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "adapter/memory_table.h"
#include "engine/datagram/delivery.h"
#include "engine/objects/process.h"
#include "wire/frame.h"
#include "wire/net_address.h"
#include "wire/process_id.h"
#include "wire/stream.h"

namespace verbena {

class RemoteRequester;

// Bytes of up to this many go through the buffers, longer ones from memory to memory.
inline constexpr uint32_t kCopied = 16 * 1024;

// A range of this process's memory as a key names it. It is translated again each time it is used.
struct KeyedRange {
  uint32_t key;
  bool remote;
  uint32_t pd;
  uint32_t qpn;
  MemoryUse use;
  uint64_t address;
  uint64_t length;
};

// The answer to a READ that is still to be sent.
struct ReadAnswer {
  wire::AnswerHead head;
  KeyedRange from;
  PeerAdapter* memory;          // of this process, or with XRC of another one of the node
  std::shared_ptr<void> keeps;  // keeps `memory` alive
  uint64_t done = 0;
};

struct RemotePeer : std::enable_shared_from_this<RemotePeer> {
  RemotePeer(Process& own_process, const wire::ProcessId& peer_id);
  ~RemotePeer();

  Process& process;
  const wire::ProcessId id;
  wire::NetAddress address;      // of the last connection: its end
  wire::NetAddress own_address;  // and ours
  bool begun_here = false;
  int64_t since = 0;              // ns: of this connection
  std::atomic<bool> gone{false};  // the process has ended
  uint32_t users = 0;             // routes and connection requests that name it; under the progress lock
  std::atomic<bool> connected{false};
  std::atomic<bool> broken{false};     // the connection is of no use any more; FrameReceiver ends it
  std::atomic<bool> out_ended{false};  // the socket takes no more; what has come is still read
  std::atomic<uint32_t> epoch{0};      // counts connections
  int fd = -1;                         // changes under the progress lock and out_mutex
  int epoll = -1;                      // RemotePeers::epoll()

  // ---- what comes, and what carries it out: under the progress lock ----
  wire::InStream in;
  // by source and target number
  std::unordered_map<uint64_t, std::unique_ptr<RemoteRequester>> remote_requesters;
  std::vector<RemoteRequester*> acknowledgements_due;
  std::vector<RemoteRequester*> waiting_for_receives;  // found no receive WQE; to be told of the next
  // The frame whose bytes are still to come. Neither a requester nor an answer: its bytes are skipped.
  struct {
    uint64_t left = 0;
    RemoteRequester* remote_requester = nullptr;
    wire::RequestHead request{};
    bool is_answer = false;
    wire::AnswerHead answer{};
  } bulk_in;
  std::unique_ptr<DatagramSender> datagram_source;  // stands for all UD queue pairs of the process
  uint32_t datagram_source_qpn = 0;                 // of the last datagram
  // By destination: datagrams delivered since the last one that was dropped for want of a receive WQE.
  std::unordered_map<uint32_t, uint32_t> datagrams_taken;
  // ns: since then the first frame is a datagram that waits for a receive WQE; 0: it is not.
  int64_t held_since = 0;
  uint32_t held_polls = 0;  // polls of the program since
  // The last frame was a long one with a head of this size. The next may be one as well: only its head is
  // read into the buffer. 0: it was a short one.
  size_t takes_large = 0;
  bool answers_due = false;  // answers were appended and not sent yet
  uint32_t asked = 0;        // queries over this connection that have no reply yet
  bool ready = false;        // epoll(7) has reported the socket
  bool stalled = false;      // the first frame cannot be carried out now
  int64_t ended_at = 0;      // ns: stalled since then though the other end has closed; 0: not so

  // ---- what goes ----
  std::mutex out_mutex;
  wire::OutStream out;
  std::vector<KeyedRange> bulk;    // the bytes of the bulk frame that is being sent
  bool bulk_is_lost = false;       // they are not there any more: the frame is padded
  uint64_t bulks = 0;              // begun so far
  bool awaits_answer = false;      // requests were sent and nothing has come since: more requests gather
  bool blocked = false;            // the socket was full: epoll(7) reports room
  std::atomic<int64_t> try_at{0};  // ns: while blocked, programs that poll skip the socket until then
  std::deque<ReadAnswer> reads;
  std::deque<wire::AnswerHead> answers;  // found no room
  std::atomic<bool> gathered{false};     // there may be something to send
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> bytes_in{0};
};

// Bytes of the send buffer that requests leave to answers.
inline constexpr size_t kAnswersRoom = 64 * 1024;
inline constexpr size_t kMostAnswersKept = 1 << 16;
// Answers to READs that wait, per connected queue pair: no device of ours lets a requester have more in
// flight (max_qp_init_rd_atom).
inline constexpr size_t kMostReadsOfOne = 256;
// Requests that gather are sent as soon as they have this many bytes.
inline constexpr size_t kGathered = 32 * 1024;

void close_connection(int fd);

// ---- all under out_mutex ----

// Room for a frame with a request. nullptr: no room, or no connection.
std::byte* append_request(RemotePeer& peer, size_t size);
// Appends an answer. It is sent with the next flush(), and lost only with the connection.
void append_answer(RemotePeer& peer, const wire::AnswerHead& head);
// The bytes behind the head that was appended last are those of `peer.bulk`.
void begin_bulk(RemotePeer& peer, uint64_t size);
// Sends as much as the socket takes. After EAGAIN the socket is skipped for kRoomPause: each send(2) or
// recv(2) in vain would take the socket's lock from the kernel's network code. The caller holds no hazard
// guard.
void flush(RemotePeer& peer);
// The next flush() tries even during that pause.
inline void try_at_once(RemotePeer& peer) { peer.try_at.store(0, std::memory_order_relaxed); }
// Is the path sound? It is if the other machine has acknowledged all that was sent, or if bytes from it are
// unread here. Then a process that does not answer is stopped, or not scheduled. Makes system calls: not for
// the data path.
bool is_path_sound(RemotePeer& peer);

}  // namespace verbena
