/**
 * A picture small enough for one event: drawn anew, smaller and coarser until it fits. Nothing leaves this machine here.
 */

const SIDES = [1024, 768, 512, 384, 256];
const QUALITY = 0.7;

/**
 * @param {Blob} file
 * @param {number} maxBytes  of the data URL
 * @returns {Promise<string>}  a data URL. Raises RangeError if it cannot be made to fit, DOMException if it is no picture
 */
export async function smallPicture(file, maxBytes) {
  const bitmap = await createImageBitmap(file);
  try {
    for (const side of SIDES) {
      const url = drawn(bitmap, Math.min(1, side / Math.max(bitmap.width, bitmap.height)));
      if (url.length <= maxBytes) return url;
    }
  } finally {
    bitmap.close();
  }
  throw new RangeError("picture too large");
}

/**
 * @param {ImageBitmap} bitmap
 * @param {number} scale
 * @returns {string}
 */
function drawn(bitmap, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", QUALITY);
}
