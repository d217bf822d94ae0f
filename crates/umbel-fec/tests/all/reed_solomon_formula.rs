//! The repair symbols are those of the generator matrix of RFC 5510. This test computes the matrix
//! again with naive methods: bit by bit multiplication, a Vandermonde matrix of powers,
//! Gauss–Jordan elimination and matrix products.

use umbel_fec::{Points, ReedSolomon};

type Matrix = Vec<Vec<u8>>;

/// Returns a · b modulo x^8 + x^4 + x^3 + x^2 + 1 [RFC 5510 §8.1].
fn multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a = if a & 0x80 == 0 { a << 1 } else { a << 1 ^ 0x1d };
    }
    product
}

fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |product, _| multiply(product, base))
}

fn inverse(a: u8) -> u8 {
    (1..=255).find(|&b| multiply(a, b) == 1).expect("only 0 has none")
}

/// Returns v_{i,j} = x_j^i for i in 0..k, j in 0..n.
fn vandermonde(k: usize, points: &[u8]) -> Matrix {
    (0..k).map(|i| points.iter().map(|&x| power(x, i)).collect()).collect()
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let entry = |row: &[u8], column: usize| {
        row.iter().zip(b).fold(0, |sum, (&x, b)| sum ^ multiply(x, b[column]))
    };
    a.iter().map(|row| (0..b[0].len()).map(|column| entry(row, column)).collect()).collect()
}

fn inverted(mut a: Matrix) -> Matrix {
    let n = a.len();
    let mut b: Matrix = (0..n).map(|i| (0..n).map(|j| u8::from(i == j)).collect()).collect();
    for column in 0..n {
        let pivot = (column..n).find(|&row| a[row][column] != 0).expect("it is invertible");
        a.swap(column, pivot);
        b.swap(column, pivot);
        let scale = inverse(a[column][column]);
        for matrix in [&mut a, &mut b] {
            matrix[column].iter_mut().for_each(|x| *x = multiply(*x, scale));
        }
        for row in (0..n).filter(|&row| row != column) {
            let factor = a[row][column];
            for matrix in [&mut a, &mut b] {
                let pivot = matrix[column].clone();
                for (x, p) in matrix[row].iter_mut().zip(pivot) {
                    *x ^= multiply(factor, p);
                }
            }
        }
    }
    b
}

/// Returns GM = (V_{k,k})^−1 · V_{k,n} [RFC 5510 §8.2.1].
fn generator(k: usize, points: &[u8]) -> Matrix {
    product(&inverted(vandermonde(k, &points[..k])), &vandermonde(k, points))
}

fn assert_encodes_by(k: usize, code: ReedSolomon, points: &[u8]) {
    let matrix = generator(k, points);
    let len = 3;
    let source: Vec<u8> = (0..k * len).map(|i| (i * 31 + i / 7) as u8).collect();
    let mut encoded = vec![0; points.len() * len];
    code.encode(k as u32, len, &source, 0..points.len() as u32, &mut encoded).unwrap();
    for (j, symbol) in encoded.chunks(len).enumerate() {
        for (at, &byte) in symbol.iter().enumerate() {
            let column = (0..k).map(|i| multiply(source[i * len + at], matrix[i][j]));
            assert_eq!(byte, column.fold(0, |a, b| a ^ b), "k = {k}, symbol {j}");
        }
    }
}

#[test]
fn symbols_are_those_of_the_formula() {
    // v_{i,j} = α^(i·j) = (α^j)^i with α = 2.
    let points: Vec<u8> = (0..255).map(|j| power(2, j)).collect();
    for k in [1, 2, 3, 5, 16, 20, 64, 100, 128, 254, 255] {
        assert_encodes_by(k, ReedSolomon::new(Points::Formula), &points);
    }
}

#[test]
fn symbols_with_rizzos_points_are_those_of_his_matrix() {
    // Rizzo's first point is 0, and j − 1 replaces j in the others.
    let points: Vec<u8> = [0].into_iter().chain((0..254).map(|j| power(2, j))).collect();
    for k in [1, 2, 5, 20, 128, 255] {
        assert_encodes_by(k, ReedSolomon::new(Points::Rizzo), &points);
    }
}
