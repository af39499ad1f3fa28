// API keys as the gateway knows them: `slc_live_`, 30 random base62 characters, 6 of checksum.
import { createHmac, randomInt } from "node:crypto";
import * as zlib from "node:zlib";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const randomLength = 30;
const checksumLength = 6;

export function newKey() {
  const random = Array.from({ length: randomLength }, () => alphabet[randomInt(alphabet.length)]).join("");
  return `slc_live_${random}${checksum(random)}`;
}

/** CRC-32 (IEEE) of the random part in base62, most significant digit first, padded with `0`. */
export function checksum(random) {
  let rest = crc32(random);
  let digits = "";
  for (let i = 0; i < checksumLength; i++) {
    digits = alphabet[rest % alphabet.length] + digits;
    rest = Math.floor(rest / alphabet.length);
  }
  return digits;
}

/** What the database keeps in place of the key: hex HMAC-SHA-256 under the pepper. */
export function keyHash(pepper, key) {
  return createHmac("sha256", pepper).update(key, "utf8").digest("hex");
}

// `zlib.crc32` came with Node.js 20.15.
function crc32(text) {
  if (zlib.crc32) return zlib.crc32(text);
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text, "utf8")) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}
