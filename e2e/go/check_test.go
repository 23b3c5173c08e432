package main

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func TestCheckFindsWhatGoWouldMisread(t *testing.T) {
	asked := map[string]bool{"a": true, "b": true}
	cases := map[string]struct {
		list   extenderv1.HostPriorityList
		ranked bool
		good   bool
	}{
		"ranked":             {extenderv1.HostPriorityList{{Host: "a", Score: 10}, {Host: "b", Score: 9}}, true, true},
		"neutral":            {extenderv1.HostPriorityList{{Host: "a", Score: 5}, {Host: "b", Score: 5}}, false, true},
		"missing":            {extenderv1.HostPriorityList{{Host: "a", Score: 10}}, false, false},
		"twice":              {extenderv1.HostPriorityList{{Host: "a", Score: 10}, {Host: "a", Score: 1}}, false, false},
		"not asked":          {extenderv1.HostPriorityList{{Host: "a", Score: 10}, {Host: "c", Score: 1}}, false, false},
		"too high":           {extenderv1.HostPriorityList{{Host: "a", Score: 11}, {Host: "b", Score: 1}}, false, false},
		"negative":           {extenderv1.HostPriorityList{{Host: "a", Score: -1}, {Host: "b", Score: 1}}, false, false},
		"two best":           {extenderv1.HostPriorityList{{Host: "a", Score: 10}, {Host: "b", Score: 10}}, false, false},
		"different, no best": {extenderv1.HostPriorityList{{Host: "a", Score: 9}, {Host: "b", Score: 8}}, false, false},
	}
	for name, c := range cases {
		ranked, err := Check(asked, c.list)
		if (err == nil) != c.good || ranked != c.ranked {
			t.Errorf("%s: ranked %v, error %v", name, ranked, err)
		}
	}
}

func TestStrictRefusesWhatTheDecoderTolerates(t *testing.T) {
	for _, raw := range []string{`null`, `[] []`, `[{"Host":"a","Score":1,"Extra":2}]`, `[{"Host":"a","Score":1.0}]`, ``} {
		if strict([]byte(raw)) == nil {
			t.Errorf("%s is accepted", raw)
		}
	}
	if err := strict([]byte(`[{"Host":"a","Score":1}]`)); err != nil {
		t.Error(err)
	}
}

func TestGeneratedRequestsEncodeAndRepeat(t *testing.T) {
	first, second := rand.New(rand.NewPCG(3, 0)), rand.New(rand.NewPCG(3, 0))
	variants := map[string]bool{}
	for range 3000 {
		a, b := Generate(first, Names{"node-", 100}), Generate(second, Names{"node-", 100})
		left, err := json.Marshal(a.Args)
		if err != nil {
			t.Fatal(err)
		}
		right, _ := json.Marshal(b.Args)
		if string(left) != string(right) {
			t.Fatal("one seed gave two requests")
		}
		variants[a.Variant] = true
	}
	if len(variants) != 6 {
		t.Errorf("variants seen: %v", variants)
	}
}
