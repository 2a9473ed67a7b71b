# SPDX-License-Identifier: BSD-2-Clause
"""The harness reads other programs' output: perftest's by the formats of version 4.5 (perftest_parameters.h), the
others' as the packaged versions print it."""
import unittest

from harness import parse

LATENCY_HEAD = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
                "   99% percentile[usec]   99.9% percentile[usec] \n")
LATENCY_LINE = (" 8       1000          0.07           5.31         0.08     \t       0.09        \t0.02   \t\t0.11    \t\t"
                "4.02   \n")
LINE = "-" * 87 + "\n"


class PerftestLatency(unittest.TestCase):
    def test_summary_line(self):
        text = "Waiting\n" + LINE + LATENCY_HEAD + LATENCY_LINE + LINE
        self.assertEqual(parse.perftest_latency(text), {"min": 0.07, "t_typical": 0.08, "t_avg": 0.09})

    def test_samples_give_more_digits(self):
        text = LATENCY_HEAD + "#, usec\n1, 0.081\n2, 0.0834\n3, 0.0936\n" + LINE + LATENCY_HEAD + LATENCY_LINE
        found = parse.perftest_latency(text)
        self.assertEqual(found["t_typical"], 0.0834)
        self.assertAlmostEqual(found["t_avg"], 0.086)

    def test_no_result_is_an_error(self):
        with self.assertRaises(parse.ParseError):
            parse.perftest_latency(LATENCY_HEAD + "Completion with error at client\n")


class PerftestBandwidth(unittest.TestCase):
    def test_gigabits_become_gigabytes(self):
        text = (" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
                " 65536      5000             0.00               104.00             \t\t   0.198364\n")
        self.assertEqual(parse.perftest_bandwidth(text), {"BW average": 13.0, "MsgRate": 0.198364})

    def test_heading_alone_is_an_error(self):
        with self.assertRaises(parse.ParseError):
            parse.perftest_bandwidth(" #bytes     #iterations    BW peak[Gb/sec]    MsgRate[Mpps]\n")


class FiPingpong(unittest.TestCase):
    HEAD = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"

    def test_short_transfers_use_the_rate(self):
        text = self.HEAD + "8       100k    =100k    1.5m        0.06s     28.18       0.28       3.52\n"
        self.assertAlmostEqual(parse.fi_pingpong(text)["mean"], 1 / 3.52)

    def test_long_transfers_use_the_time(self):
        text = self.HEAD + "4k      100k    =100k    781m        0.33s   2457.60       1.67       0.60\n"
        self.assertEqual(parse.fi_pingpong(text)["mean"], 1.67)

    def test_nothing_is_an_error(self):
        with self.assertRaises(parse.ParseError):
            parse.fi_pingpong("fi_getinfo: -61 (No data available)\n")


class UcxPerftest(unittest.TestCase):
    def test_final_line(self):
        text = ("|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall  |\n"
                "                      200000      0.090     0.093     0.094       81.87      81.87    10731374    10731374\n")
        found = parse.ucx_perftest(text)
        self.assertEqual((found["50%ile"], found["average"]), (0.090, 0.093))
        self.assertAlmostEqual(found["rate"], 10.731374)

    def test_nothing_is_an_error(self):
        with self.assertRaises(parse.ParseError):
            parse.ucx_perftest("no usable transports\n")


class Cmtime(unittest.TestCase):
    TABLE = ("creating id\nbinding source address\n"
             "step              total ms     max ms     min us  us / conn\n"
             "create id    :        3.00       0.02       2.00       3.00\n"
             "bind addr    :        2.00       0.02       2.00       2.00\n"
             "resolve addr :       20.00      18.00    1000.00      20.00\n"
             "resolve route:       10.00       9.00    1000.00      10.00\n"
             "create qp    :       15.00       1.00      10.00      15.00\n"
             "connect      :       50.00      40.00    1000.00      50.00\n"
             "disconnect   :       40.00      30.00    1000.00      40.00\n"
             "destroy      :        5.00       1.00       2.00       5.00\n")

    def test_a_step_is_time_per_connection(self):
        self.assertEqual(parse.cmtime(self.TABLE, 1000)["connect"], 50.0)

    def test_the_rate_is_of_the_steps_to_connect(self):
        self.assertAlmostEqual(parse.cmtime(self.TABLE, 1000)["connections per second"], 10000)

    def test_a_missing_step_is_an_error(self):
        with self.assertRaises(parse.ParseError):
            parse.cmtime("step\nconnect      :       50.00      40.00    1000.00      50.00\n", 1000)


class OwnJson(unittest.TestCase):
    def test_numbers_are_kept_and_words_dropped(self):
        self.assertEqual(parse.own_json('log\n{"measure": "memcpy", "size": 8, "median_us": 0.5}\n'),
                         {"size": 8, "median_us": 0.5})

    def test_the_rate_over_libfabric_is_read(self):
        text = ('{"provider": "tcp;ofi_rxm", "how": "inject", "size": 64, "count": 500000, "window": 128, '
                '"seconds": 1.250000, "million_messages_per_second": 0.400000}\n')
        self.assertEqual(parse.own_json(text)["million_messages_per_second"], 0.4)

    def test_no_json_is_an_error(self):
        with self.assertRaises(parse.ParseError):
            parse.own_json("usage\n")


class ErrorLine(unittest.TestCase):
    def test_the_telling_line_is_found(self):
        self.assertEqual(parse.error_line("Unable to find the device\n#bytes\n----\n"), "Unable to find the device")

    def test_folders_are_left_out(self):
        self.assertEqual(parse.error_line("cannot open /home/somebody/build/bin/verbena: No such file\n"),
                         "cannot open verbena: No such file")

    def test_silence_is_silence(self):
        self.assertEqual(parse.error_line("\n--\n"), "")


if __name__ == "__main__":
    unittest.main()
