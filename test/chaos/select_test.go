// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// selectScenes returns count scenes in their order: everythingKilled and scenes that the seed chooses. The same seed chooses
// the same scenes, so that a failure can be reproduced.
func selectScenes(all []scene, count int, seed string) []scene {
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(seed)) // a hash.Hash never fails
	chosen := map[string]bool{everythingKilled: true}
	for _, i := range rand.New(rand.NewPCG(digest.Sum64(), 0)).Perm(len(all)) {
		if len(chosen) >= count {
			break
		}
		chosen[all[i].name] = true
	}
	var selected []scene
	for _, sc := range all {
		if chosen[sc.name] {
			selected = append(selected, sc)
		}
	}
	return selected
}

func TestSelectScenes_DependsOnSeed(t *testing.T) {
	t.Parallel()
	names := func(selected []scene) (names []string) {
		for _, sc := range selected {
			names = append(names, sc.name)
		}
		return names
	}
	t.Run("each selection has the asked number and the kill of everything", func(t *testing.T) {
		for count := 1; count <= len(scenes); count++ {
			selected := names(selectScenes(scenes, count, "a commit"))
			require.Len(t, selected, count)
			require.Contains(t, selected, everythingKilled)
		}
	})
	t.Run("a seed repeats its selection", func(t *testing.T) {
		require.Equal(t, names(selectScenes(scenes, 4, "a commit")), names(selectScenes(scenes, 4, "a commit")))
	})
	t.Run("seeds together select every scene", func(t *testing.T) {
		seen := map[string]bool{}
		for i := range 64 {
			for _, name := range names(selectScenes(scenes, 4, string(rune('a'+i)))) {
				seen[name] = true
			}
		}
		require.Len(t, seen, len(scenes))
	})
}
