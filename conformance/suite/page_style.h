// SPDX-License-Identifier: BSD-2-Clause
//
// Style and script of the pages. Colours have a contrast of at least 4.5 to what is written on them or beside them, in
// both schemes; a verdict is never told by its colour alone (conformance/selftest/browser.py).
#pragma once

namespace conformance {

constexpr const char* page_style = R"(<style>
:root{color-scheme:light dark;--page:#fff;--soft:#f3f5f7;--line:#c9d0d6;--text:#1c2127;--dim:#56606a;--link:#0b57a4;--on:#fff;
--CONFORMS:#1a7f4b;--DEVIATES:#b91c26;--EXPECTED:#7d4290;--NOT-CLAIMED:#5b6470;--NOT-TESTED:#8a5a00}
@media(prefers-color-scheme:dark){:root{--page:#14181d;--soft:#1f252c;--line:#3b444e;--text:#e7ebef;--dim:#a4aeb8;--link:#7db7f5;--on:#10151a;
--CONFORMS:#43b97a;--DEVIATES:#ff7a7a;--EXPECTED:#cf9bdb;--NOT-CLAIMED:#a0aab4;--NOT-TESTED:#e0a53a}}
*{box-sizing:border-box}[hidden]{display:none!important}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);margin:0 auto;max-width:72rem;padding:1rem}
a{color:var(--link)}:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:3px}
h1{font-size:1.35rem;margin:.2rem 0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.8rem 0 .4rem}
.dim{color:var(--dim)}.note{border-left:4px solid var(--NOT-TESTED);padding:.3rem .8rem;background:var(--soft);overflow-wrap:anywhere}
.answer{font-size:1.6rem;font-weight:650;margin:.6rem 0 .2rem;line-height:1.25}.answer.DEVIATES{color:var(--DEVIATES)}.answer.CONFORMS{color:var(--CONFORMS)}
.bar{display:flex;height:12px;border-radius:6px;overflow:hidden;margin:.5rem 0;background:var(--line)}.bar i{display:block;height:100%;background:var(--c)}
.counts{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;margin:.3rem 0;list-style:none}.counts i.cell{margin:0 .4rem 0 0}.worst{padding-left:1.4rem;margin:.5rem 0}.worst li{margin:.2rem 0;overflow-wrap:anywhere}
.map{display:grid;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));gap:.5rem;margin:1rem 0}
.tile{display:block;border:1px solid var(--line);border-left:5px solid var(--c);border-radius:6px;padding:.4rem .6rem;text-decoration:none;color:inherit;background:var(--soft)}
.tile:hover{border-color:var(--link)}.tile b{display:block;font-size:.85rem;line-height:1.25}.tile small{color:var(--dim)}
.cells{display:flex;flex-wrap:wrap;gap:2px;margin-top:.3rem}
.cell{display:inline-block;width:8px;height:8px;border-radius:2px;background:var(--c)}
.cell.NOT-CLAIMED{background:none;border:1.5px solid var(--c)}.cell.NOT-TESTED{background:none;border:1.5px dotted var(--c)}
.cell.DEVIATES{border-radius:50%;width:10px;height:10px;margin:-1px}.cell.EXPECTED{border-radius:50%}
.CONFORMS{--c:var(--CONFORMS)}.DEVIATES{--c:var(--DEVIATES)}.EXPECTED{--c:var(--EXPECTED)}.NOT-CLAIMED{--c:var(--NOT-CLAIMED)}.NOT-TESTED{--c:var(--NOT-TESTED)}
.v{font-size:.72rem;font-weight:650;border-radius:4px;padding:.1rem .45rem;white-space:nowrap;color:var(--on);background:var(--c)}
.tag{font-size:.75rem;border:1px solid var(--line);border-radius:4px;padding:0 .4rem;white-space:nowrap;color:var(--dim)}
.filters{position:sticky;top:0;background:var(--page);padding:.5rem 0;border-bottom:1px solid var(--line);display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:center;z-index:1}
.filters label{white-space:nowrap;font-size:.85rem;padding:.2rem 0}.filters input[type=checkbox]{width:1.05rem;height:1.05rem;vertical-align:-.15rem}
.filters select,.filters input[type=search]{font:inherit;max-width:100%;padding:.3rem .5rem;border:1px solid var(--dim);border-radius:6px;background:var(--page);color:var(--text)}
.filters input[type=search]{flex:1 1 12rem;min-width:0}.filters output{font-size:.85rem;color:var(--dim)}
section,h2,details{scroll-margin-top:5.5rem}
details{border-bottom:1px solid var(--line)}
summary{display:flex;gap:.5rem;padding:.4rem 0;cursor:pointer;align-items:baseline;flex-wrap:wrap}
summary code,td code{overflow-wrap:anywhere;font-size:.85rem}summary code{flex:0 1 auto}summary .say{flex:1 1 100%;font-size:.85rem;color:var(--dim);overflow-wrap:anywhere}
.in{padding:.1rem 0 .8rem .9rem;border-left:3px solid var(--line)}.in p{margin:.4rem 0;overflow-wrap:anywhere}.in h3{font-size:.8rem;margin:.8rem 0 .1rem;color:var(--dim);font-weight:650}
pre{background:var(--soft);padding:.6rem;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;border-radius:6px;margin:.2rem 0}
table{border-collapse:collapse;width:100%;font-size:.86rem}caption{text-align:left;font-weight:650;padding:.3rem 0}
td,th{border-bottom:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
thead th{background:var(--soft)}.scroll{overflow-x:auto}.rows{table-layout:fixed}.rows td,.rows th{min-width:8rem}
.worse{font-weight:650;color:var(--DEVIATES)}.better{font-weight:650;color:var(--CONFORMS)}
.facts{columns:2 18rem;font-size:.85rem}.facts div{display:flex;justify-content:space-between;gap:1rem;border-bottom:1px dotted var(--line);break-inside:avoid}.facts span:last-child{text-align:right;overflow-wrap:anywhere}
svg text{fill:var(--dim);font:12px system-ui,sans-serif}
@media(max-width:40rem){body{padding:.7rem}.filters{position:static}.filters input[type=search]{flex:1 1 100%}.filters select{flex:1 1 40%}.in{padding-left:.6rem}.facts{columns:1}.map{grid-template-columns:1fr 1fr}section,h2,details{scroll-margin-top:.5rem}
.rows,.rows tbody,.rows tr,.rows td{display:block;min-width:0;width:100%}.rows thead{display:none}.rows tr{border-bottom:2px solid var(--line);padding:.3rem 0}.rows td{border:0;padding:.15rem 0}.rows td[data-of]::before{content:attr(data-of) ": ";color:var(--dim);font-size:.8rem}}
@media print{:root{--page:#fff;--soft:#f3f5f7;--line:#999;--text:#000;--dim:#333;--on:#fff;--CONFORMS:#1a7f4b;--DEVIATES:#b91c26;--EXPECTED:#7d4290;--NOT-CLAIMED:#5b6470;--NOT-TESTED:#8a5a00}
.filters{display:none}body{max-width:none;font-size:9.5pt;padding:0}details::details-content{content-visibility:visible;display:block}.bar,.cell,.tile{print-color-adjust:exact}.in p,pre{margin:.15rem 0}pre{padding:.3rem .6rem;overflow:visible}.in{padding-bottom:.3rem}details,.facts div,.tile,tr{break-inside:avoid}h2{break-after:avoid}.v{color:#000!important;background:none!important;border:1px solid #000}a{color:inherit;text-decoration:none}}
</style>)";

constexpr const char* page_script = R"(<script>
(function(){
 var all=function(what){return [].slice.call(document.querySelectorAll(what))};
 var filters=document.querySelector('.filters'),opened=[];
 if(filters){
  var boxes=all('.filters input[type=checkbox]'),lists=all('.filters select');
  var search=document.querySelector('.filters input[type=search]'),told=document.querySelector('.filters output');
  var show=function(){
   var on={},shown=0;boxes.forEach(function(b){on[b.value]=b.checked});
   var words=search.value.toLowerCase(),rows=all('[data-v]');
   rows.forEach(function(row){
    var kinds=row.dataset.v.split(' ');
    row.hidden=kinds.every(function(k){return k in on&&!on[k]})
     ||lists.some(function(l){return l.value&&row.dataset[l.dataset.by]!==l.value})
     ||!!words&&row.textContent.toLowerCase().indexOf(words)<0;
    shown+=!row.hidden});
   all('.ref').forEach(function(r){r.hidden=document.getElementById(r.dataset.of).hidden});
   all('section').forEach(function(s){
    s.hidden=!!s.querySelector('[data-v],.ref')&&!s.querySelector('[data-v]:not([hidden]),.ref:not([hidden])')});
   told.value=shown+' of '+rows.length+' shown'};
  boxes.concat(lists,search).forEach(function(i){i.addEventListener('input',show)});
  filters.hidden=false;show();
 }
 var open=function(){
  var to=location.hash&&document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if(to&&to.tagName==='DETAILS'){to.hidden=false;to.open=true;to.scrollIntoView();to.firstElementChild.focus({preventScroll:true})}};
 addEventListener('hashchange',open);open();
 addEventListener('beforeprint',function(){
  opened=all('details:not([open])');opened.forEach(function(d){d.open=true})});
 addEventListener('afterprint',function(){opened.forEach(function(d){d.open=false});opened=[]});
})();
</script>)";

}  // namespace conformance
