package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// distance is the number of letters to add, drop, change or swap with their neighbour to make a of b (optimal string
// alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// nearest returns the known key that a person may have meant: one of the same table that is spelled alike, begins or ends so,
// else the same word in another table, else whatever is spelled most alike.
func nearest(key string, known []string) string {
	key = strings.ToLower(key[:min(len(key), 64)])
	table, leaf := split(key)
	return slices.MinFunc(known, func(a, b string) int { return cost(table, leaf, a) - cost(table, leaf, b) })
}

func cost(table, leaf, known string) int {
	knownTable, knownLeaf := split(known)
	word := 10 * distance(leaf, knownLeaf)
	part := strings.HasPrefix(knownLeaf, leaf) || strings.HasSuffix(knownLeaf, leaf)
	if part && len(leaf) > 2 {
		word = min(word, 10)
	}
	if table == knownTable {
		return word
	}
	return word + 5 + min(10*distance(table, knownTable), 10)
}

// split parts a key from the table it stands in.
func split(key string) (table, leaf string) {
	i := strings.LastIndexByte(key, '.')
	return key[:max(i, 0)], key[i+1:]
}

func unknownIn(table, key string, known []string) error {
	return fmt.Errorf("unknown key %s in %s: the nearest known one is %s", show(key), table, nearest(key, known))
}

func names[T any](fields []field[T]) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

// knownKeys are all keys and tables as a person writes them.
func knownKeys() []string {
	known := names(schema)
	for _, k := range names(portSchema) {
		known = append(known, portTable+"."+k)
	}
	for _, k := range names(targetSchema) {
		known = append(known, targetTable+"."+k)
	}
	for _, k := range slices.Clone(known) {
		if table, _ := split(k); !slices.Contains(known, table) {
			known = append(known, table)
		}
	}
	return known
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
