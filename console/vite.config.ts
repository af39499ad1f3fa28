/// <reference types="vitest/config" />
import { rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const publicDir = here('../public');

// `public/` also holds files that are not built (`_headers`), so only our own folders are emptied.
const emptyOwnFolders: Plugin = {
  name: 'empty-own-folders',
  apply: 'build',
  async buildStart() {
    await Promise.all(
      ['console', 'me'].map((name) => rm(`${publicDir}/${name}`, { recursive: true, force: true })),
    );
  },
};

export default defineConfig(({ mode }) => ({
  root: here('./pages'),
  publicDir: false,
  plugins: [emptyOwnFolders],
  build: {
    outDir: publicDir,
    emptyOutDir: false,
    assetsDir: 'console/assets',
    // Inlined assets would be `data:` URLs, which the content security policy forbids.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: ['es2022', 'chrome123', 'firefox120', 'safari17.5'],
    rollupOptions: {
      input: { console: here('./pages/console/index.html'), me: here('./pages/me/index.html') },
      output: { chunkFileNames: 'console/assets/shared-[hash].js' },
    },
  },
  server: { proxy: mode === 'development' ? gatewayProxy() : {} },
  test: { root: here('.'), include: ['test/**/*.test.ts'], environment: 'node' },
}));

/** `npm run dev` serves the pages itself and leaves every call to a gateway on this machine. */
function gatewayProxy() {
  const target = process.env['SLUICE_URL'] ?? 'http://127.0.0.1:8787';
  return { '/admin': target, '/api': target, '/v1': target };
}
