// SPDX-License-Identifier: BSD-2-Clause
//
// Memory that its owner has mapped MAP_SHARED, reached by a peer that maps it too. Two processes: the
// child owns the memory, the parent sends the requests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "engine/objects/context.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "fabric/held_writes.h"
#include "fabric/shared_heap.h"
#include "program_memory.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

using MappingState = MappedRegions::State;
constexpr size_t kOwnersBytes = 256 * 1024;

// Memory of the owner, and its file.
struct OwnersMemory {
  uint8_t* bytes = nullptr;
  int fd = -1;
};

OwnersMemory map_shared(int fd, size_t file_size = kOwnersBytes) {
  if (ftruncate(fd, static_cast<off_t>(file_size)) != 0) return {};
  void* const bytes = mmap(nullptr, kOwnersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return {bytes == MAP_FAILED ? nullptr : static_cast<uint8_t*>(bytes), fd};
}

OwnersMemory of_memfd() { return map_shared(memfd_create("shared", MFD_CLOEXEC)); }

// The descriptor is closed, the name stays until the owner has been asked.
OwnersMemory of_closed_file(const std::string& folder) {
  const std::string path = folder + "/verbena-test-" + std::to_string(getpid());
  const OwnersMemory memory = map_shared(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  close(memory.fd);
  return {memory.bytes, -1};
}

OwnersMemory of_nothing() {
  void* const bytes = mmap(nullptr, kOwnersBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {static_cast<uint8_t*>(bytes), -1};
}

OwnersMemory of_private_pages() {
  void* const bytes = mmap(nullptr, kOwnersBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return {static_cast<uint8_t*>(bytes), -1};
}

OwnersMemory of_segment() {
  const int segment = shmget(IPC_PRIVATE, kOwnersBytes, IPC_CREAT | 0600);
  void* const bytes = shmat(segment, nullptr, 0);
  shmctl(segment, IPC_RMID, nullptr);  // once nobody has it attached
  return {bytes == reinterpret_cast<void*>(-1) ? nullptr : static_cast<uint8_t*>(bytes), -1};
}

// Private memory that --shared-heap moves when it is registered.
OwnersMemory of_heap() {
  setenv(kSharedHeapVariable, "1", 1);
  set_program_memory({[](uint64_t, uint64_t) {}, [] { return false; }});
  const OwnersMemory memory = of_private_pages();
  // Under a sanitizer the heap is off.
  return is_shared_heap_allowed() ? memory : OwnersMemory{};
}

// What the two processes tell each other.
struct Told {
  std::atomic<uint32_t> owner_qp, peer_qp, rkey, lkey;
  std::atomic<uint64_t> address;
};

class SharedTold {
 public:
  SharedTold()
      : told_(static_cast<Told*>(
            mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  SharedTold(const SharedTold&) = delete;
  SharedTold& operator=(const SharedTold&) = delete;
  ~SharedTold() { munmap(told_, sizeof(Told)); }
  Told* operator->() const { return told_; }

 private:
  Told* told_;
};

using MakeMemory = std::function<OwnersMemory()>;

constexpr uint64_t kCounter = 128;     // offset of a word that both processes add to
constexpr uint64_t kAdditions = 5000;  // of each

// The owner adds to a word of its memory, by two system calls each: it has not mapped itself.
bool add_from_within(Pd* pd, Cq* cq, const GidEntry& gid, const Told& told) {
  const Owned<Qp> from = make_qp(pd, cq, cq), to = make_qp(pd, cq, cq);
  connect(from.get(), qp_number(to.get()), gid);
  connect(to.get(), qp_number(from.get()), gid);
  const Region local(pd, 8);
  for (uint64_t i = 0; i < kAdditions; ++i) {
    Sges sges{local.sge(0, 8)};
    ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sges);
    wr.wr.atomic = {told.address + kCounter, 1, 0, told.rkey};
    if (post(from.get(), wr) != 0 || completion(cq).status != IBV_WC_SUCCESS) return false;
  }
  return true;
}

// Binds the window to all of the region, under `rkey`.
int bind_all(Qp* qp, Mw* window, uint32_t rkey, Mr* mr, uint64_t address) {
  ibv_mr region{};
  region.lkey = mr_lkey(mr);
  ibv_mw handle{};
  handle.rkey = mw_rkey(window);
  handle.type = IBV_MW_TYPE_2;
  Sges none;
  ibv_send_wr wr = request(IBV_WR_BIND_MW, none);
  wr.bind_mw.mw = &handle;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = {&region, address, kOwnersBytes,
                          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  return post(qp, wr);
}

// A region of device memory, which is the device's own.
OwnersMemory register_device_memory(Context* context, Pd* pd, Mr** mr) {
  ibv_alloc_dm_attr attributes{};
  attributes.length = kOwnersBytes;
  Dm* dm = nullptr;
  if (alloc_dm(context, &attributes, &dm) != 0 ||
      reg_dm_mr(pd, dm, 0, kOwnersBytes, kAllAccess | IBV_ACCESS_ZERO_BASED, mr) != 0)
    return {};
  return {reinterpret_cast<uint8_t*>(dm->memory), -1};
}

// The owner: registers the memory, and does what it is told. `make`: empty for device memory.
int own(const Child& parent, const SharedTold& told, const GidEntry& gid, const MakeMemory& make) {
  set_shared_memory_hint([](uint64_t, uint64_t) { return true; });
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  const Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
  Mr* mr = nullptr;
  const OwnersMemory memory = make ? make() : register_device_memory(context.get(), pd.get(), &mr);
  if (memory.bytes == nullptr) return parent.tell('-'), 0;
  const auto address = mr != nullptr ? 0 : reinterpret_cast<uint64_t>(memory.bytes);
  constexpr int kAccess = kAllAccess | IBV_ACCESS_MW_BIND;
  if (mr == nullptr && reg_mr(pd.get(), memory.bytes, kOwnersBytes, address, kAccess, &mr) != 0) return 1;
  Mw* window = nullptr;
  Owned<Mr> region(mr);
  told->owner_qp = qp_number(qp.get());
  told->address = address;
  told->rkey = mr_rkey(mr);
  told->lkey = mr_lkey(mr);
  parent.tell('q');
  if (parent.hear() != 'g') return 2;
  connect(qp.get(), told->peer_qp, gid);
  parent.tell('r');
  for (char word; (word = parent.hear()) != 'x';) {
    switch (word) {
      case 'd':
        region.reset();
        break;
      case 'i':  // as if it was stopped in the midst of a deregistration, before the epoch
        for (SharedMr* entry : {context->process->view().mr(MemoryKey::unpack(told->rkey).index),
                                context->process->view().shared_mr(MemoryKey::unpack(told->rkey).index)})
          entry->valid.store(0);
        break;
      case 'h':  // to the second half
        if (rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.bytes + kOwnersBytes / 2,
                     kOwnersBytes / 2, 0) != 0)
          return 3;
        break;
      case 't':
        if (ftruncate(memory.fd, 0) != 0) return 4;
        break;
      case 'o':
        for (int i = 0; i < 50; ++i)
          if (ftruncate(memory.fd, kOwnersBytes) != 0 || ftruncate(memory.fd, 4096) != 0) return 9;
        break;
      case 'w':  // the peer is to use a window from now on
        if (alloc_mw(pd.get(), IBV_MW_TYPE_2, &window) != 0) return 13;
        told->rkey = (mw_rkey(window) & ~0xffu) | 0x42;
        if (bind_all(qp.get(), window, told->rkey, mr, address) != 0 ||
            completion(cq.get()).status != IBV_WC_SUCCESS)
          return 14;
        break;
      case 'v':
        if (dealloc_mw(window) != 0) return 15;
        break;
      case 'f':
        std::fill_n(memory.bytes, kOwnersBytes, uint8_t{0x5a});
        break;
      case 'k': {  // a child writes to its copy
        Child child([&](const Child&) {
          std::fill_n(memory.bytes, kOwnersBytes, uint8_t{0x33});
          return 0;
        });
        if (child.finish() != 0) return 10;
        break;
      }
      case 'a':
        if (!add_from_within(pd.get(), cq.get(), gid, *told.operator->())) return 12;
        break;
      case 'u':  // the last page goes, as the preload reports it
        memory_changes(address + kOwnersBytes - 4096, 4096);
        if (munmap(memory.bytes + kOwnersBytes - 4096, 4096) != 0) return 11;
        memory_changed(address + kOwnersBytes - 4096, 4096);
        break;
      case 'p':  // a receive of the whole region
        if (receive(qp.get(), {{address, kOwnersBytes, told->lkey}}) != 0) return 5;
        break;
      case 'c':
        if (completion(cq.get()).status != IBV_WC_SUCCESS) return 6;
        break;
      case 's':  // is every byte what the peer's last request made it?
        for (size_t i = 0; i < kOwnersBytes; ++i)
          if (memory.bytes[i] != static_cast<uint8_t>(i * 7 + (i >> 8))) return 7;
        break;
      default:
        return 8;
    }
    parent.tell(word);
  }
  return 0;
}

class MappedMemory : public ::testing::Test {
 protected:
  // False: the machine has no such memory.
  bool begin(MakeMemory make) {
    owner_ = std::make_unique<Child>([&](const Child& parent) { return own(parent, told_, gid(), make); });
    const char ready = owner_->answer();
    EXPECT_TRUE(ready == 'q' || ready == '-');
    if (ready != 'q') {
      owner_.reset();
      return false;
    }
    context_ = open_device();
    pd_ = make_pd(context_.get());
    cq_ = make_cq(context_.get());
    qp_ = make_qp(pd_.get(), cq_.get(), cq_.get());
    local_ = std::make_unique<Region>(pd_.get(), kOwnersBytes);
    told_->peer_qp = qp_number(qp_.get());
    owner_->command('g');
    EXPECT_EQ(owner_->answer(), 'r');
    connect(qp_.get(), told_->owner_qp, gid(), {.timeout = 8, .retry_cnt = 1});
    return true;
  }
  void TearDown() override {
    if (owner_ == nullptr) return;
    owner_->command('x');
    EXPECT_EQ(owner_->finish(), 0);
  }
  void order(char word) {
    owner_->command(word);
    ASSERT_EQ(owner_->answer(), word);
  }
  const GidEntry& gid() const { return node_.directory().devices().devices[0].port(1).gids[0]; }
  ibv_wc_status carry_out(ibv_wr_opcode opcode, uint64_t offset, uint32_t length, uint64_t at = 0) {
    EXPECT_EQ(rdma(qp_.get(), opcode, {local_->sge(at, length)}, told_->address + offset, told_->rkey), 0);
    return completion(cq_.get()).status;
  }
  uint64_t fetch_add(uint64_t offset, uint64_t addend) {
    Sges sges{local_->sge(0, 8)};
    ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sges);
    wr.wr.atomic = {told_->address + offset, addend, 0, told_->rkey};
    EXPECT_EQ(post(qp_.get(), wr), 0);
    EXPECT_EQ(completion(cq_.get()).status, IBV_WC_SUCCESS);
    uint64_t before;
    std::memcpy(&before, local_->data(), sizeof before);
    return before;
  }
  PeerAdapter& peer() { return *qp_->requester.path.memory; }
  // The state of the registration that the owner's table has now; kFree: none.
  MappingState state() {
    const SharedMr* mr = peer().view().mr(index());
    if (mr->mappable == 0) return MappingState::kFree;
    const MappedRegions::Found found = peer().regions().find(mr->region, mr->mappable);
    if (!found.is_new) return found.state;
    qp_->process->peers().note_region();
    qp_->process->membership().kick();
    return MappingState::kFree;
  }
  // Sends WRITEs until the mapping is there, or refused.
  MappingState meet() {
    MappingState seen = MappingState::kFree;
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, 0, 8), IBV_WC_SUCCESS);
      seen = state();
      return seen == MappingState::kMapped || seen == MappingState::kRefused ||
             peer().view().mr(index())->mappable == 0;
    }));
    return seen;
  }
  uint32_t index() { return MemoryKey::unpack(told_->rkey).index; }
  void expect_all_operations();

  const TemporaryNode node_;
  const SharedTold told_;
  std::unique_ptr<Child> owner_;
  Owned<Context> context_;
  Owned<Pd> pd_;
  Owned<Cq> cq_;
  Owned<Qp> qp_;
  std::unique_ptr<Region> local_;
};

// WRITE, READ, atomics and SEND of many sizes give what they give by system call.
void MappedMemory::expect_all_operations() {
  uint32_t place = 0;
  for (const uint32_t length : {1u, 2u, 7u, 8u, 9u, 24u, 63u, 64u, 100u, 4096u, 65536u, 65537u, 200'000u}) {
    for (const uint32_t shift : {0u, 1u, 8u}) {
      local_->fill(static_cast<uint8_t>(length + shift));
      ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, shift, length, place = (place + 3) % 64), IBV_WC_SUCCESS);
      const std::vector<uint8_t> sent(local_->data() + place, local_->data() + place + length);
      local_->clear();
      ASSERT_EQ(carry_out(IBV_WR_RDMA_READ, shift, length, 1), IBV_WC_SUCCESS);
      ASSERT_TRUE(std::equal(sent.begin(), sent.end(), local_->data() + 1)) << length << " at " << shift;
    }
  }
  for (const uint32_t length : {257u, 1000u, 65537u, 200'000u}) {
    order('p');
    local_->fill(static_cast<uint8_t>(length));
    ASSERT_EQ(send(qp_.get(), {local_->sge(3, length)}), 0);
    ASSERT_EQ(completion(cq_.get()).status, IBV_WC_SUCCESS);
    order('c');
    const std::vector<uint8_t> sent(local_->data() + 3, local_->data() + 3 + length);
    local_->clear();
    ASSERT_EQ(carry_out(IBV_WR_RDMA_READ, 0, length), IBV_WC_SUCCESS);
    ASSERT_TRUE(std::equal(sent.begin(), sent.end(), local_->data())) << length;
  }
  local_->clear();
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, 64, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(fetch_add(64, 5), 0u);
  EXPECT_EQ(fetch_add(64, 1), 5u);
  EXPECT_EQ(fetch_add(64, 0), 6u);
  order('p');
  local_->fill(0);
  ASSERT_EQ(send(qp_.get(), {local_->sge(0, kOwnersBytes)}), 0);
  ASSERT_EQ(completion(cq_.get()).status, IBV_WC_SUCCESS);
  order('c');
  order('s');
}

TEST_F(MappedMemory, OfAMemfdIsReachedByCopy) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  expect_all_operations();
}

// What a SEND has found out about the receive buffer is known to the next one.
TEST_F(MappedMemory, AReceiveBufferThatWasMappedIsRemembered) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  for (int i = 0; i < 3; ++i) {
    order('p');
    ASSERT_EQ(send(qp_.get(), {local_->sge(0, 4096)}), 0);
    ASSERT_EQ(completion(cq_.get()).status, IBV_WC_SUCCESS);
    order('c');
    ASSERT_TRUE(qp_->fast.received.is_mapped);
  }
}

TEST_F(MappedMemory, ASendIntoADeregisteredBufferFails) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('p');
  ASSERT_EQ(send(qp_.get(), {local_->sge(0, 4096)}), 0);
  ASSERT_EQ(completion(cq_.get()).status, IBV_WC_SUCCESS);
  order('c');
  order('p');
  order('d');
  ASSERT_EQ(send(qp_.get(), {local_->sge(0, 4096)}), 0);
  EXPECT_EQ(completion(cq_.get()).status, IBV_WC_REM_OP_ERR);
}

TEST_F(MappedMemory, ASendIntoATruncatedFileFails) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('p');
  ASSERT_EQ(send(qp_.get(), {local_->sge(0, 200'000)}), 0);
  ASSERT_EQ(completion(cq_.get()).status, IBV_WC_SUCCESS);
  order('c');
  order('p');
  order('t');
  ASSERT_EQ(send(qp_.get(), {local_->sge(0, 200'000)}), 0);
  EXPECT_EQ(completion(cq_.get()).status, IBV_WC_REM_OP_ERR);
}

TEST_F(MappedMemory, ASendLongerThanItsReceiveBufferFails) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  const Region longer(pd_.get(), kOwnersBytes + 1);
  order('p');
  ASSERT_EQ(send(qp_.get(), {longer.sge(0, kOwnersBytes + 1)}), 0);
  EXPECT_EQ(completion(cq_.get()).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(MappedMemory, OfAFileThatIsClosedIsReachedByCopy) {
  ASSERT_TRUE(begin([] { return of_closed_file("/dev/shm"); }));
  const MappingState met = meet();
  EXPECT_EQ(unlink(("/dev/shm/verbena-test-" + std::to_string(owner_->pid())).c_str()), 0);
  ASSERT_EQ(met, MappingState::kMapped);
  expect_all_operations();
}

// Whether a file on disk can be recognised depends on its file system.
TEST_F(MappedMemory, OfAFileOnDiskIsReached) {
  const std::string folder = std::filesystem::temp_directory_path();
  ASSERT_TRUE(begin([&] { return of_closed_file(folder); }));
  meet();
  EXPECT_EQ(unlink((folder + "/verbena-test-" + std::to_string(owner_->pid())).c_str()), 0);
  expect_all_operations();
}

TEST_F(MappedMemory, WithoutAFileIsReachedBySystemCall) {
  ASSERT_TRUE(begin(of_nothing));
  meet();
  expect_all_operations();
}

TEST_F(MappedMemory, PrivateMemoryIsNotAskedFor) {
  ASSERT_TRUE(begin(of_private_pages));
  EXPECT_EQ(meet(), MappingState::kFree);
  expect_all_operations();
}

TEST_F(MappedMemory, OfHugePagesIsReachedByCopy) {
  constexpr size_t kHugePage = 2 * 1024 * 1024;
  if (!begin([] { return map_shared(memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB), kHugePage); }))
    GTEST_SKIP() << "the machine has no huge pages";
  ASSERT_EQ(meet(), MappingState::kMapped);
  expect_all_operations();
}

// Where the heap is off by design (docs/SHARED-HEAP.md). Elsewhere memory that is not moved is a failure.
bool heap_is_off() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return !HeldWrites().open();  // the kernel holds no writes back
#endif
}
constexpr const char* kHeapIsOff = "under a sanitizer, and without userfaultfd, the heap is off";

TEST_F(MappedMemory, OfAWindowIsReachedByCopy) {
  ASSERT_TRUE(begin(of_memfd));
  order('w');
  ASSERT_EQ(meet(), MappingState::kMapped);
  expect_all_operations();
  order('v');
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, 0, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MappedMemory, OfTheDeviceIsReachedByCopy) {
  ASSERT_TRUE(begin({}));
  ASSERT_EQ(meet(), MappingState::kMapped);
  expect_all_operations();
}

TEST_F(MappedMemory, OfASystemVSegmentIsReachedByCopy) {
  ASSERT_TRUE(begin(of_segment));
  ASSERT_EQ(meet(), MappingState::kMapped);
  expect_all_operations();
}

TEST_F(MappedMemory, OfTheSharedHeapIsReachedByCopy) {
  if (heap_is_off()) GTEST_SKIP() << kHeapIsOff;
  ASSERT_TRUE(begin(of_heap));
  ASSERT_EQ(meet(), MappingState::kMapped);
  expect_all_operations();
}

// fork(2): parent and child have copies of their own, and the requests find the parent's.
TEST_F(MappedMemory, AForkOfTheOwnerEndsTheMappingOfTheHeap) {
  if (heap_is_off()) GTEST_SKIP() << kHeapIsOff;
  ASSERT_TRUE(begin(of_heap));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('k');
  EXPECT_EQ(state(), MappingState::kFree);
  expect_all_operations();
}

TEST_F(MappedMemory, UnmappedMemoryOfTheHeapIsARemoteAccessError) {
  if (heap_is_off()) GTEST_SKIP() << kHeapIsOff;
  ASSERT_TRUE(begin(of_heap));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('u');
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, 0, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, kOwnersBytes - 4096, 64), IBV_WC_REM_ACCESS_ERR);
}

// The processor's own instruction here, a read and a write there: no addition is lost.
TEST_F(MappedMemory, AtomicsOfBothKindsAddUp) {
  ASSERT_TRUE(begin(of_memfd));
  local_->clear();
  ASSERT_EQ(meet(), MappingState::kMapped);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, kCounter, 8), IBV_WC_SUCCESS);
  owner_->command('a');
  for (uint64_t i = 0; i < kAdditions; ++i) fetch_add(kCounter, 1);
  ASSERT_EQ(owner_->answer(), 'a');
  EXPECT_EQ(fetch_add(kCounter, 0), 2 * kAdditions);
}

TEST_F(MappedMemory, DeregistrationEndsTheMapping) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  const uint32_t mappable = peer().view().mr(index())->mappable;
  order('d');
  // The owner wakes this process: the mapping goes without a further request.
  EXPECT_TRUE(eventually([&] { return peer().regions().find(index(), mappable).is_new; }));
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, 0, 8), IBV_WC_REM_ACCESS_ERR);
}

// The owner makes the key invalid, then says so by the epoch. What this process remembers of the region is of
// no use in between.
TEST_F(MappedMemory, TheOwnerStopsInTheMidstOfADeregistration) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, 64, 64), IBV_WC_SUCCESS);
  order('i');
  EXPECT_TRUE(eventually([&] {
    qp_->process->membership().kick();
    return state() != MappingState::kMapped;
  }));
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, 64, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MappedMemory, ReregistrationMovesTheRegion) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('h');
  told_->address += kOwnersBytes / 2;
  local_->fill(9);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, 0, 64), IBV_WC_SUCCESS);
  ASSERT_EQ(meet(), MappingState::kMapped);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, 0, 64), IBV_WC_SUCCESS);
  local_->clear();
  ASSERT_EQ(carry_out(IBV_WR_RDMA_READ, 0, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(local_->data()[1], 9 + 7);
}

TEST_F(MappedMemory, ATruncatedFileIsARemoteAccessError) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('t');
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, 4096, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MappedMemory, ATruncatedFileIsARemoteAccessErrorForLongReads) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('t');
  EXPECT_EQ(carry_out(IBV_WR_RDMA_READ, 0, 200'000), IBV_WC_REM_ACCESS_ERR);
}

// Pages come and go while they are copied, and stay away in the end. That ends the queue pair, never the
// process.
TEST_F(MappedMemory, TruncationUnderTrafficIsARemoteAccessError) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  owner_->command('o');
  ibv_wc_status status = IBV_WC_SUCCESS;
  EXPECT_TRUE(eventually([&] {
    for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
      if (status == IBV_WC_SUCCESS) status = carry_out(opcode, 0, kOwnersBytes - 64);
    return status != IBV_WC_SUCCESS;
  }));
  EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(owner_->answer(), 'o');
}

// The kernel would end a thread that blocks the signal (signal(7)).
TEST_F(MappedMemory, AThreadThatBlocksSigbusIsNotEnded) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  order('t');
  ibv_wc_status status = IBV_WC_SUCCESS;
  sigset_t mask, before;
  sigemptyset(&mask);
  sigaddset(&mask, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &mask, &before);
  std::thread([&] { status = carry_out(IBV_WR_RDMA_WRITE, 0, 64); }).join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MappedMemory, TheOwnersDeathIsSeen) {
  ASSERT_TRUE(begin(of_memfd));
  ASSERT_EQ(meet(), MappingState::kMapped);
  owner_->kill_now();
  EXPECT_NE(carry_out(IBV_WR_RDMA_WRITE, 0, 8), IBV_WC_SUCCESS);
  owner_.reset();
}

// fcntl(2): closing any descriptor of a file releases the locks of the process on it.
TEST_F(MappedMemory, LocksOfTheProgramOnTheFileStay) {
  const int mine = memfd_create("locked", MFD_CLOEXEC);
  ASSERT_GE(mine, 0);
  ASSERT_TRUE(begin([&] { return map_shared(mine); }));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(mine, F_SETLK, &whole), 0);
  ASSERT_EQ(meet(), MappingState::kMapped);
  const std::string name = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(mine);
  Child other([&](const Child&) {
    const int again = open(name.c_str(), O_RDWR | O_CLOEXEC);
    return again >= 0 && fcntl(again, F_SETLK, &whole) != 0 ? 0 : 1;
  });
  EXPECT_EQ(other.finish(), 0);
  close(mine);
}

}  // namespace
}  // namespace verbena
