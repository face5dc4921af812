//! How fast crc-fast computes CRC-32C in cache; benchmarks/checksums.py asks and says what the lines mean.

use crc_fast::{checksum, CrcAlgorithm};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;

fn main() {
    let input = std::io::stdin();
    let mut output = std::io::stdout();
    for line in input.lock().lines() {
        let line = line.expect("a line");
        let words: Vec<usize> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let (size, copies, calls, quanta) = (words[0], words[1], words[2], words[3]);
        let one: Vec<u8> = (0..size).map(|i| ((i * 31 + (i >> 8) * 7) & 0xFF) as u8).collect();
        let data = one.repeat(copies);
        let (mut best, mut total) = (f64::INFINITY, 0u64);
        for _ in 0..quanta {
            total = 0;
            let begin = Instant::now();
            for call in 0..calls {
                let start = call % copies * size;
                total = total.wrapping_add(checksum(CrcAlgorithm::Crc32Iscsi, black_box(&data[start..start + size])));
            }
            best = best.min(begin.elapsed().as_secs_f64());
        }
        writeln!(output, "{} {}", best, total).expect("stdout");
        output.flush().expect("stdout");
    }
}
