// Reads a published log with an implementation that is not ours: golang.org/x/mod/sumdb.
//
//	go run oracle.go FOLDER VKEY
//
// It opens the checkpoint with the key, reads tiles through a reader that checks them against the
// signed root, compares every entry with its leaf, makes and checks proofs of its own, and checks
// ours: proofs/*.tlog-proof, and consistency.txt (old size, old root, hashes).
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// folder reads C2SP tiles for a reader that names them as the Go checksum database does.
type folder string

func (f folder) Height() int { return 8 }

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var out [][]byte
	for _, tile := range tiles {
		path := "tile/" + strings.TrimPrefix(tile.Path(), "tile/8/")
		body, err := os.ReadFile(filepath.Join(string(f), path))
		if err != nil {
			return nil, err
		}
		out = append(out, body)
	}
	return out, nil
}

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
}

func run(dir, vkey string) error {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return fmt.Errorf("vkey: %w", err)
	}
	signed, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return err
	}
	tree, err := open(signed, verifier)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	reader := tlog.TileHashReader(tree, folder(dir))
	root, err := tlog.TreeHash(tree.N, reader)
	if err != nil || root != tree.Hash {
		return fmt.Errorf("the tiles lead to %v, signed is %v (%v)", root, tree.Hash, err)
	}
	entries, err := entries(dir, tree.N)
	if err != nil {
		return err
	}
	if err := records(tree, reader, entries); err != nil {
		return err
	}
	proofs, err := ours(dir, tree, verifier, entries)
	if err != nil {
		return err
	}
	olds, err := consistency(dir, tree)
	if err != nil {
		return err
	}
	fmt.Printf("size %d: %d entries, %d proofs and %d consistency proofs of ours hold\n",
		tree.N, len(entries), proofs, olds)
	return nil
}

func open(signed []byte, verifier note.Verifier) (tlog.Tree, error) {
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		return tlog.Tree{}, fmt.Errorf("malformed text %q", opened.Text)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	hash, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: hash}, err
}

func entries(dir string, size int64) ([][]byte, error) {
	var out [][]byte
	for n := int64(0); n*256 < size; n++ {
		tile := tlog.Tile{H: 8, L: 0, N: n, W: int(min(256, size-n*256))}
		path := "tile/entries/" + strings.TrimPrefix(tile.Path(), "tile/8/0/")
		body, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return nil, err
		}
		for len(body) > 0 {
			end := 2 + int(binary.BigEndian.Uint16(body))
			out = append(out, body[2:end])
			body = body[end:]
		}
	}
	if int64(len(out)) != size {
		return nil, fmt.Errorf("%d entries for a size of %d", len(out), size)
	}
	return out, nil
}

func records(tree tlog.Tree, reader tlog.HashReader, entries [][]byte) error {
	for first := 0; first < len(entries); first += 256 {
		last := int(min(int64(len(entries)), int64(first+256)))
		var indexes []int64
		for i := first; i < last; i++ {
			indexes = append(indexes, tlog.StoredHashIndex(0, int64(i)))
		}
		leaves, err := reader.ReadHashes(indexes)
		if err != nil {
			return fmt.Errorf("leaves from %d: %w", first, err)
		}
		for i, leaf := range leaves {
			if tlog.RecordHash(entries[first+i]) != leaf {
				return fmt.Errorf("entry %d is not its leaf", first+i)
			}
		}
	}
	step := len(entries)/50 + 1
	for i := 0; i < len(entries); i += step {
		proof, err := tlog.ProveRecord(tree.N, int64(i), reader)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		leaf := tlog.RecordHash(entries[i])
		if err := tlog.CheckRecord(proof, tree.N, tree.Hash, int64(i), leaf); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	return nil
}

func ours(dir string, tree tlog.Tree, verifier note.Verifier, entries [][]byte) (int, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "proofs", "*.tlog-proof"))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		head, signed, found := bytes.Cut(data, []byte("\n\n"))
		lines := strings.Split(string(head), "\n")
		if !found || len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" {
			return 0, fmt.Errorf("%s: malformed", path)
		}
		index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
		if err != nil {
			return 0, err
		}
		hashes, err := parse(lines[2:])
		if err != nil {
			return 0, err
		}
		named, err := open(signed, verifier)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		leaf := tlog.RecordHash(entries[index])
		if err := tlog.CheckRecord(hashes, named.N, named.Hash, index, leaf); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return len(paths), nil
}

func consistency(dir string, tree tlog.Tree) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "consistency.txt"))
	if err != nil {
		return 0, err
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if lines[0] == "" {
		return 0, nil
	}
	for _, line := range lines {
		words := strings.Fields(line)
		old, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			return 0, err
		}
		hashes, err := parse(words[1:])
		if err != nil {
			return 0, err
		}
		proof := tlog.TreeProof(hashes[1:])
		if err := tlog.CheckTree(proof, tree.N, tree.Hash, old, hashes[0]); err != nil {
			return 0, fmt.Errorf("from %d: %w", old, err)
		}
	}
	return len(lines), nil
}

func parse(texts []string) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, 0, len(texts))
	for _, text := range texts {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("%q is no hash", text)
		}
		var hash tlog.Hash
		copy(hash[:], raw)
		out = append(out, hash)
	}
	return out, nil
}

func min(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
