// SPDX-License-Identifier: BSD-2-Clause
#include "wire/address_range_text.h"

#include <gtest/gtest.h>

#include <vector>

#include "wire/net_address.h"

namespace verbena::wire {
namespace {

AddressRange range(const std::string& text) {
  AddressRange read{};
  EXPECT_TRUE(read_range(text, &read)) << text;
  return read;
}

bool has(const std::string& of, const std::string& text) {
  NetAddress address;
  EXPECT_TRUE(NetAddress::from_text(text, &address)) << text;
  return contains(range(of), address.bytes);
}

TEST(AddressRangeText, IsReadAndWritten) {
  for (const char* text :
       {"192.0.2.0/24", "192.0.2.7/32", "0.0.0.0/0", "2001:db8::/32", "2001:db8::1/128", "::/0"})
    EXPECT_EQ(range_text(range(text)), text);
  EXPECT_EQ(range_text(range("192.0.2.7")), "192.0.2.7/32");
  EXPECT_EQ(range_text(range("2001:db8::1")), "2001:db8::1/128");
}

TEST(AddressRangeText, IsNotMadeOfOtherText) {
  for (const char* text :
       {"", "/", "/8", "here", "192.0.2.0/", "192.0.2.0/33", "192.0.2.0/-1", "192.0.2.0/24x", "192.0.2.1/24",
        "2001:db8::1/64", "2001:db8::/129", "192.0.2.0/24/24", "1.2.3/8"}) {
    AddressRange read{};
    EXPECT_FALSE(read_range(text, &read)) << text;
  }
}

TEST(AddressRange, HasItsAddresses) {
  EXPECT_TRUE(has("192.0.2.0/24", "192.0.2.0"));
  EXPECT_TRUE(has("192.0.2.0/24", "192.0.2.255"));
  EXPECT_FALSE(has("192.0.2.0/24", "192.0.3.0"));
  EXPECT_TRUE(has("192.0.2.8/29", "192.0.2.15"));
  EXPECT_FALSE(has("192.0.2.8/29", "192.0.2.16"));
  EXPECT_TRUE(has("192.0.2.7", "192.0.2.7"));
  EXPECT_FALSE(has("192.0.2.7", "192.0.2.6"));
  EXPECT_TRUE(has("2001:db8::/32", "2001:db8:ffff::1"));
  EXPECT_FALSE(has("2001:db8::/32", "2001:db9::1"));
}

TEST(AddressRange, OfOneIpVersionHasNoneOfTheOther) {
  EXPECT_FALSE(has("0.0.0.0/0", "2001:db8::1"));
  EXPECT_FALSE(has("2000::/3", "192.0.2.1"));
}

TEST(AddressRange, WithoutRangesEveryAddressIsIn) {
  const NetAddress address{{0xfd, 1}};
  EXPECT_TRUE(is_in({}, address.bytes));
  const std::vector<AddressRange> ranges = {range("192.0.2.0/24"), range("fd01::/16")};
  EXPECT_FALSE(is_in({ranges.data(), 1}, address.bytes));
}

// As a damaged table may have it.
TEST(AddressRange, WithTooManyBitsIsOneAddress) {
  const NetAddress address{{0xfd, 1}};
  EXPECT_TRUE(contains({address.bytes, 4'000'000'000}, address.bytes));
  EXPECT_FALSE(contains({address.bytes, 4'000'000'000}, NetAddress{{0xfd, 2}}.bytes));
}

}  // namespace
}  // namespace verbena::wire
